-- A filter of the kinds that sites write: defaults, advice, a refusal, and a record of what
-- was submitted.

function slurm_cli_setup_defaults(options, early)
   options["time"] = "30"
   if options.type == "srun" then
      options["unbuffered"] = true
   end
   return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, component)
   if options["mem"] == "0" then
      slurm.log_error("--mem=0 takes whole nodes: say how much the job needs")
      return slurm.ERROR
   end
   if options.gpus ~= nil and options.cpus_per_gpu == nil then
      options.cpus_per_gpu = 1
      slurm.user_msg("%s", "1 CPU for each GPU is assumed")
   end
   if options["exclusive"] ~= nil then
      options["exclusive"] = nil
   end
   if options.comment == "json" then
      options.comment = slurm.json_cli_options(options)
   elseif options.comment == "bad" then
      options.no_such_option = 1
   elseif options.comment == "unsupported" then
      options.bb = "x"
   end
   return slurm.SUCCESS
end

function slurm_cli_post_submit(component, job, step)
   slurm.log_info("component %d: job %d, step %d", component, job, step)
   return slurm.SUCCESS
end
