package kpi_test

import (
	"fmt"

	"github.com/musterhpc/muster/accounting/kpi"
)

func ExampleFind() {
	definition, ok := kpi.Find("cpu_efficiency")
	if !ok {
		fmt.Println("no such KPI")
		return
	}
	fmt.Println(definition.Title)
	fmt.Println(definition.Source, definition.Metric)
	// Output:
	// CPU efficiency
	// nodes muster_kpi_cpu_efficiency_ratio
}
