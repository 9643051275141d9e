-- A script of the kinds that sites write: a partition by what a job asks for, an account by
-- user, no job without a time limit, short interactive jobs.

local INTERACTIVE_MINUTES = 4 * 60
local accounts = { alice = "physics", bob = "chemistry" }

local function wants_gpus(job_desc)
   for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }) do
      local value = job_desc[field]
      if value ~= nil and string.find(value, "gpu") then
         return true
      end
   end
   return false
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   if submit_uid == 0 then
      return slurm.SUCCESS
   end

   if job_desc.time_limit == slurm.NO_VAL then
      slurm.log_user("Give a time limit: --time=HH:MM:SS")
      return slurm.ESLURM_INVALID_TIME_LIMIT
   end

   if job_desc.partition == nil then
      if wants_gpus(job_desc) then
         job_desc.partition = "gpu"
      else
         job_desc.partition = "batch"
      end
      slurm.user_msg("partition %s was chosen", job_desc.partition)
   elseif part_list[job_desc.partition] == nil then
      slurm.user_msg("you may not use %s", job_desc.partition)
      return slurm.ESLURM_INVALID_PARTITION_NAME
   end

   if job_desc.account == nil then
      job_desc.account = accounts[job_desc.user_name] or job_desc.default_account
   end

   local interactive = job_desc.script == nil or job_desc.script == ""
   if interactive and job_desc.time_limit > INTERACTIVE_MINUTES then
      slurm.log_info("%s asked for %d minutes", job_desc.user_name, job_desc.time_limit)
      slurm.user_msg("interactive jobs are cut to 4 hours")
      job_desc.time_limit = INTERACTIVE_MINUTES
   end

   if job_desc.environment.PROJECT then
      job_desc.wckey = job_desc.environment["PROJECT"]
      job_desc.environment["PROJECT_SEEN"] = "yes"
   end

   if job_desc.name == "loop" then
      while true do end
   elseif job_desc.name == "hog" then
      local t = {}
      for i = 1, 1e9 do t[i] = string.rep("x", 4096) .. i end
   elseif job_desc.name == "bomb" then
      local s = "x"
      while true do s = s .. s end
   elseif job_desc.name == "nil" then
      return job_desc.nothing.here
   elseif job_desc.name == "typo" then
      job_desc.partitoin = "gpu"
   elseif job_desc.name == "file" then
      io.open("/etc/passwd")
   elseif job_desc.name == "backtrack" then
      return string.find(string.rep("a", 300000), ".-.-.-.-b") or slurm.SUCCESS
   elseif job_desc.name == "own" then
      slurm.user_msg("no such jobs here")
      return slurm.ERROR
   elseif job_desc.name == "variable" then
      job_desc.environment["X"] = "y"
   elseif job_desc.name == "nan" then
      job_desc.min_nodes = 0/0
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   if modify_uid == 0 then
      return slurm.SUCCESS
   end
   if job_desc.time_limit ~= slurm.NO_VAL and job_desc.time_limit > job_rec.time_limit then
      slurm.user_msg("job %d keeps its limit of %d minutes", job_rec.job_id, job_rec.time_limit)
      return slurm.ERROR
   end
   if job_desc.comment ~= nil then
      job_desc.comment = job_desc.comment .. " (by " .. job_rec.user_name .. ")"
   end
   return slurm.SUCCESS
end
