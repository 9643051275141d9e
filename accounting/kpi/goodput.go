package kpi

// Step is where a part of the GPU time that was bought went.
type Step struct {
	Name   string
	Words  string
	States []string // final states of the runs whose time it is
}

// HeldSteps are the steps of what runs held, in the order in which they are taken
// from what a node has.
//
//muster:table one entry for each step
func HeldSteps() []Step {
	steps := []Step{
		{"good", "held with work by runs that ended well", []string{"COMPLETED"}},
		{"open", "held with work by runs that are not over", nil},
	}
	for _, class := range Classes() {
		steps = append(
			steps,
			Step{"failed_" +
				class.Name, "held by runs that failed because " + class.Words,
				[]string{class.State}},
		)
	}
	return append(steps,
		Step{"cancelled", "held by runs that were cancelled", []string{"CANCELLED"}},
		Step{"preempted", "held by runs that were preempted or queued again", nil})
}

// FreeSteps are the steps of what no run held, by the state of the node; one that
// none of the others is about is down.
func FreeSteps() []Step {
	return []Step{
		{"unallocated", "of nodes in service, held by no run", nil},
		{"off", "of nodes that were powered down to save energy", nil},
		{"drained", "of nodes that somebody drained, held by no run", nil},
		{"down", "of nodes that were lost, failed or down, held by no run", nil},
	}
}

// Steps lists all of them, in the order in which they are read: together they are
// what was bought.
func Steps() []Step {
	steps := HeldSteps()[:2:2]
	steps = append(
		steps,
		Step{"held_idle", "held without work by runs that ended well or are not over", nil},
	)
	steps = append(steps, HeldSteps()[2:]...)
	return append(steps, FreeSteps()...)
}

// goodputKPIs is what became of the GPU time that was bought.
func goodputKPIs() []KPI {
	const from = "the ledger: states of the nodes, and what each run held where; the agents' GPU counters and samples for what was held without work"
	const metric = "muster_kpi_gpu_ladder_seconds"
	edges := []string{
		"For the cluster only. In whole microseconds: the steps add up to gpu_bought exactly.",
		"A run counts by how it ended, also if that was behind the window's end; for the part of it within the window.",
		"Time that failed, cancelled and preempted runs held is theirs, with work or without.",
		"Bought is what the nodes were configured with, in or out of service. Where a run holds a device that its node has not any more, the node's configuration bounds it.",
		"Parts of devices (shards, MPS) and what Kubernetes holds are in unallocated.",
		"A cluster without GPUs has no figure.",
	}
	kpis := []KPI{
		{
			Name:    "goodput",
			Title:   "Goodput",
			Unit:    Ratio,
			Source:  Ladder,
			From:    from,
			Metric:  "muster_kpi_goodput_ratio",
			Scale:   1,
			Formula: "GPU time that runs which ended well held with work, divided by the GPU time that was bought",
			Num:     "sum(good_us)",
			Den:     "sum(bought_us)",
			Edges:   edges,
		},
		{
			Name:    "gpu_bought",
			Title:   "GPU-hours bought",
			Unit:    GPUHours,
			Source:  Ladder,
			From:    from,
			Metric:  "muster_kpi_gpu_bought_seconds",
			Scale:   3600,
			Formula: "GPUs of the cluster times time, in or out of service",
			Num:     "if(sum(bought_us) = 0, NULL, sum(bought_us)) / 3.6e9",
			Edges:   edges,
		},
	}
	for _, step := range Steps() {
		kpis = append(
			kpis,
			KPI{
				Name:    "gpu_ladder_" + step.Name,
				Title:   "GPU-hours " + step.Words,
				Unit:    GPUHours,
				Source:  Ladder,
				From:    from,
				Metric:  metric,
				Class:   step.Name,
				Scale:   3600,
				Formula: "GPU time " + step.Words,
				Num: "if(sum(bought_us) = 0, NULL, sum(" + step.Name +
					"_us)) / 3.6e9",
				Edges: []string{"As goodput."},
			},
		)
	}
	return kpis
}
