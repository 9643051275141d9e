package dashboards

import (
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// builder is what the SDK takes for a link.
type builder = cog.Builder[dashboard.DashboardLink]

// ClickHouse is a query of the grafana-clickhouse-datasource plugin (4.x), as
// its SQL editor stores it. The SDK has no type for it.
type ClickHouse struct {
	RefID         string               `json:"refId"`
	Datasource    common.DataSourceRef `json:"datasource"`
	EditorType    string               `json:"editorType"`
	RawSQL        string               `json:"rawSql"`
	Format        int                  `json:"format"` // 0 is a time series, 1 a table
	QueryType     string               `json:"queryType"`
	PluginVersion string               `json:"pluginVersion"`
}

// ImplementsDataqueryVariant makes it a query to the SDK.
func (ClickHouse) ImplementsDataqueryVariant() {}

// DataqueryType names the data source.
func (ClickHouse) DataqueryType() string { return clickType }

// Equals compares two queries.
func (c ClickHouse) Equals(other variants.Dataquery) bool {
	o, ok := other.(ClickHouse)
	return ok && c.RefID == o.RefID && c.RawSQL == o.RawSQL && c.Format == o.Format
}

// Validate finds nothing: the SQL is checked by running it.
func (ClickHouse) Validate() error { return nil }

// clickHouseBuilder is what a panel takes.
type clickHouseBuilder struct{ ClickHouse }

// Build implements cog.Builder.
func (b clickHouseBuilder) Build() (variants.Dataquery, error) { return b.ClickHouse, nil }

func newClickHouse(ref string, query Query) clickHouseBuilder {
	click := ClickHouse{
		RefID:         ref,
		Datasource:    sourceRef(clickType, clickVar),
		EditorType:    "sql",
		RawSQL:        query.Expr,
		Format:        1,
		QueryType:     "table",
		PluginVersion: "4.8.0",
	}
	if query.Series {
		click.Format, click.QueryType = 0, "timeseries"
	}
	return clickHouseBuilder{click}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
