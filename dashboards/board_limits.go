package dashboards

func limitsBoard() Board {
	const of = `cluster="$cluster"`
	const budget = of + `,account=~"$account"`
	none := "no budget is set (cost.budgets in muster.yaml)"
	return Board{
		UID:         Limits,
		Title:       "Muster / Reservations, licences and limits",
		From:        "now-24h",
		Vars:        []Var{clusterVar(), accountVar()},
		Description: "What keeps jobs waiting although the cluster has room: reservations, licences, limits of QOS and accounts, and money.",
		Rows: []Row{
			{Title: "Reservations", Panels: reservations(of)},
			{Title: "Licences", Panels: []Panel{
				stackPanel(
					"Licences",
					"Licences held by jobs, kept for reservations, and free.",
					Count,
					Query{Expr: `sum by (license, state) (muster_licenses{` +
						of + `})`, Legend: "{{license}} {{state}}"},
				).
					empty("no licences are configured (Licenses in slurm.conf)"),
				barPanel(
					"Licences in use",
					"Part of each kind that is not free. At 1 every further job waits.",
					Ratio,
					`1 - sum by (license) (muster_licenses{`+of+
						`,state="free"}) / sum by (license) (muster_licenses{`+of+`})`,
					"{{license}}",
				).colored(Green, Step{0.8, Yellow}, Step{1, Red}).
					top(1).
					empty("no licences are configured (Licenses in slurm.conf)"),
			}},
			{Title: "Limits", Panels: []Panel{
				barPanel(
					"Limits by what is used of them",
					"Limits of QOS and accounts that are used most. At 1 the further jobs wait, whatever idles: `sacctmgr modify` changes one.",
					Ratio,
					`topk(20, muster_limit_used_ratio{`+of+`})`,
					"{{scope}} {{name}} {{limit}}",
				).colored(Green, Step{0.8, Yellow}, Step{1, Red}).
					top(1).
					empty("no QOS or account has a group limit"),
				{
					Title:       "Limits and use",
					Kind:        Table,
					Unit:        Count,
					Column:      "used",
					Width:       12,
					Description: "What counts against each limit now, in the limit's unit.",
					MayBeEmpty:  "no QOS or account has a group limit",
					Queries:     []Query{{Expr: `muster_limit_used{` + of + `}`}},
				},
				stackPanel(
					"Jobs by QOS",
					"Live jobs by QOS and state.",
					Count,
					Query{Expr: `sum by (qos, state) (muster_qos_jobs{` +
						of + `})`, Legend: "{{qos}} {{state}}"},
				).empty("no job lives"),
				linePanel(
					"GPUs held by account",
					"GPUs that each account's jobs hold.",
					Count,
					Query{Expr: `muster_account_gpus{` +
						budget + `}`, Legend: "{{account}}"},
				).empty("nothing runs"),
			}},
			{Title: "Budgets", Panels: []Panel{
				barPanel(
					"Budget spent",
					"Part of each account's budget that is spent, with all below it. Hold it against the part of the time that is over.",
					Ratio,
					`muster_budget_spent_ratio{`+
						budget+`}`,
					"{{account}}",
				).
					colored(Green, Step{0.8, Yellow}, Step{1, Red}).
					top(1).
					wide(8).
					empty(none),
				barPanel(
					"Time over",
					"Part of the budget's time that is over.",
					Ratio,
					`muster_budget_elapsed_ratio{`+
						budget+`}`,
					"{{account}}",
				).top(1).
					wide(8).
					empty(none),
				barPanel(
					"Spent at its end, if it goes on",
					"Part of the budget that will be spent at its end if spending goes on as in the last seven days. Above 1: it will not last.",
					Ratio,
					`muster_budget_forecast_ratio{`+
						budget+`}`,
					"{{account}}",
				).
					colored(Green, Step{0.95, Yellow}, Step{1, Red}).
					top(2).
					wide(8).
					empty(none),
				linePanel(
					"Spent",
					"What each account has spent, beside its budget, in the site's currency.",
					Count,
					Query{
						Expr:   `muster_budget_spent{` + budget + `}`,
						Legend: "{{account}} spent",
					},
					Query{Expr: `muster_budget_amount{` +
						budget + `}`, Legend: "{{account}} budget"},
				).wide(24).
					empty(none),
			}},
		},
	}
}

// reservations shows which there are, how full they are and what they keep
// from others.
func reservations(of string) []Panel {
	none := "there is no reservation (scontrol create reservation)"
	return []Panel{
		{
			Title:       "Reservations",
			Kind:        Table,
			Unit:        Count,
			Column:      "nodes",
			Width:       12,
			MayBeEmpty:  none,
			Description: "Nodes of each reservation, with its state: active ones hold them now.",
			Queries:     []Query{{Expr: `muster_reservation_nodes{` + of + `}`}},
		},
		barPanel(
			"Ends in",
			"Time until each reservation ends. A job that does not fit before the next one begins waits: ReqNodeNotAvail, Reserved for maintenance.",
			Seconds,
			`sort(muster_reservation_end_timestamp_seconds{`+of+`} - time())`,
			"{{reservation}}",
		).wide(6).
			empty(none),
		barPanel(
			"Begins in",
			"Time until each reservation that is not active yet begins.",
			Seconds,
			`sort(muster_reservation_start_timestamp_seconds{`+of+`} - time() > 0)`,
			"{{reservation}}",
		).wide(6).empty("no reservation is still to come"),
		linePanel(
			"Nodes kept by reservations",
			"Nodes that active reservations hold, and those that are planned.",
			Count,
			Query{
				Expr:   `sum by (state) (muster_reservation_nodes{` + of + `})`,
				Legend: "{{state}}",
			},
		).empty(none),
		linePanel(
			"CPUs in use inside reservations",
			"CPUs of jobs on the nodes of each active reservation, by the CPUs of those nodes. A value near 0 for long means that the reserved nodes are not used.",
			Ratio,
			Query{Expr: `muster_reservation_cpus{` + of +
				`,state="allocated"} / on (cluster, reservation) (sum by (cluster, reservation) (muster_reservation_cpus{` +
				of + `}) > 0)`, Legend: "{{reservation}}"},
		).
			top(1).
			empty("no reservation is active"),
	}
}
