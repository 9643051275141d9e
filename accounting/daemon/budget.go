package daemon

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/spec"
)

// Budgets are the budgets in force as they stood when they were last computed.
// The slice never changes.
func (d *Daemon) Budgets() []kpi.Spent {
	if p := d.budgets.Load(); p != nil {
		return *p
	}
	return nil
}

// asker runs a query; its text may be noted somewhere.
type asker func(ctx context.Context, q query.Query, each func(scan func(...any) error) error) error

// queryTree is the tree of associations as it is now.
func queryTree(ctx context.Context, request asker, scope query.Scope) ([]kpi.Node, error) {
	var nodes []kpi.Node
	err := request(ctx, query.Shares(scope), func(scan func(...any) error) error {
		var node kpi.Node
		err := scan(&node.ID, &node.Parent, &node.Account, &node.User, &node.Shares)
		nodes = append(nodes, node)
		return err
	})
	return nodes, err
}

// charge is what one user's use in one account cost, exactly.
type charge struct {
	account, user string
	used          []*big.Int // TRES-microseconds, as chargedTRES
	cost          *big.Int   // in 1/kpi.CostScale
	runs          uint64
}

// queryCharges asks what was used and what it cost.
func queryCharges(
	ctx context.Context,
	request asker,
	scope query.Scope,
	r *query.Report,
	rates *kpi.Rates,
) ([]charge, error) {
	var charges []charge
	err := request(ctx, r.Charge(scope, rates), func(scan func(...any) error) error {
		c := charge{used: make([]*big.Int, len(query.Charged())), cost: new(big.Int)}
		text := make([]string, len(c.used)+1)
		dest := []any{&c.account, &c.user, &c.runs}
		for i := range text {
			dest = append(dest, &text[i])
		}
		if err := scan(dest...); err != nil {
			return err
		}
		for i := range text {
			n, err := parseAmount(text[i])
			if err != nil {
				return err
			}
			if i < len(c.used) {
				c.used[i] = n
			} else {
				c.cost = n
			}
		}
		charges = append(charges, c)
		return nil
	})
	return charges, err
}

// toCurrency is an exact sum in the currency.
func toCurrency(n *big.Int) float64 {
	f, _ := new(
		big.Float,
	).Quo(new(big.Float).SetInt(n), new(big.Float).SetInt(costScale())).
		Float64()
	return f
}

func costScale() *big.Int {
	return new(big.Int).Mul(big.NewInt(1_000_000*1024), big.NewInt(3_600_000_000))
}

// budgetSpent tells how a budget stands.
func budgetSpent(
	ctx context.Context,
	request asker,
	scope query.Scope,
	nodes []kpi.Node,
	budget kpi.Budget,
	rates *kpi.Rates,
) (kpi.Spent, error) {
	spent := kpi.Spent{Budget: budget, Amount: float64(budget.Micro) / 1e6, At: scope.Now}
	since := func(from spec.Instant) (float64, error) {
		r := &query.Report{
			Start:    from,
			End:      min(budget.End, scope.Now),
			Accounts: kpi.Below(nodes, budget.Account),
		}
		list, err := queryCharges(ctx, request, scope, r, rates)
		sum := new(big.Int)
		for _, c := range list {
			sum.Add(sum, c.cost)
		}
		return toCurrency(sum), err
	}
	if scope.Now <= budget.Start {
		return spent, nil
	}
	var err error
	spent.Spent, err = since(budget.Start)
	if err != nil {
		return spent, err
	}
	end := min(budget.End, scope.Now)
	from := max(budget.Start, end.Add(-kpi.RecentSpan))
	spent.Window = end.Sub(from)
	spent.Recent, err = since(from)
	return spent, err
}

// computeBudgets asks how the budgets in force stand.
func (d *Daemon) computeBudgets(ctx context.Context, scope query.Scope) ([]kpi.Spent, error) {
	spents := []kpi.Spent{}
	if len(d.cfg.Rates.Budgets) == 0 || len(d.cfg.Rates.Prices) == 0 {
		return spents, nil
	}
	request := asker(d.cfg.Store.Query)
	nodes, err := queryTree(ctx, request, scope)
	if err != nil {
		return nil, err
	}
	for _, budget := range d.cfg.Rates.Budgets {
		if scope.Now < budget.Start || scope.Now >= budget.End {
			continue
		}
		spent, err := budgetSpent(ctx, request, scope, nodes, budget, &d.cfg.Rates)
		if err != nil {
			return nil, err
		}
		spents = append(spents, spent)
	}
	return spents, nil
}

// reportBudget is muster report budget: how each budget stands. A user sees those of
// the accounts that are asked for.
func (r *report) reportBudget(ctx context.Context) error {
	rates := &r.s.D.cfg.Rates
	if len(rates.Budgets) == 0 {
		return spec.Refuse(
			spec.CodeBadRequest,
			"there is no budget: cost.budgets of muster.yaml names them",
		)
	}
	if len(rates.Prices) == 0 {
		return errNoPrices()
	}
	nodes, err := queryTree(ctx, r.runQuery, r.scope)
	if err != nil {
		return err
	}
	unit := rates.Currency
	r.addColumns(
		[3]string{"Account", "text"},
		[3]string{"Start", "int", "unix seconds"},
		[3]string{"End", "int", "unix seconds"},
		[3]string{"Amount", "float", unit},
		[3]string{
			"Spent",
			"float",
			unit,
		},
		[3]string{"Share", "float", string(kpi.Ratio)},
		[3]string{"Elapsed", "float", string(kpi.Ratio)},
		[3]string{
			"Forecast",
			"float",
			unit,
		},
		[3]string{"RunsOut", "int", "unix seconds"},
		[3]string{"Warning", "int", "%"},
		[3]string{"Enforced", "int"},
	)
	for _, budget := range rates.Budgets {
		if len(r.ask.Accounts) > 0 && !slices.Contains(r.ask.Accounts, budget.Account) {
			continue
		}
		spent, err := budgetSpent(ctx, r.runQuery, r.scope, nodes, budget, rates)
		if err != nil {
			return err
		}
		var out, warn any
		if at, ok := spent.RunsOut(); ok {
			out = int64(at) / int64(spec.Second)
		}
		if p := spent.Warning(); p > 0 {
			warn = p
		}
		enforced := int64(0)
		if budget.Enforce {
			enforced = 1
		}
		r.addRow(
			budget.Account,
			int64(budget.Start)/int64(spec.Second),
			int64(budget.End)/int64(spec.Second),
			spent.Amount,
			spent.Spent,
			spent.Share(),
			spent.Elapsed(),
			spent.Forecast(),
			out,
			warn,
			enforced,
		)
	}
	return nil
}

func errNoPrices() error {
	return spec.Refuse(
		spec.CodeBadRequest,
		"there are no prices: cost.prices of muster.yaml names them",
	)
}

// reportChargeback is muster report chargeback: what each user in each account used
// and what it cost, rounded so that the lines add up to the total.
func (r *report) reportChargeback(ctx context.Context) error {
	rates := &r.s.D.cfg.Rates
	if len(rates.Prices) == 0 {
		return errNoPrices()
	}
	list, err := queryCharges(ctx, r.runQuery, r.scope, &r.ask, rates)
	if err != nil {
		return err
	}
	r.addColumns([3]string{"Account", "text"}, [3]string{"Login", "text"}, [3]string{"Runs", "int"})
	for _, name := range query.Charged() {
		unit := name + "-seconds"
		if name == "mem" {
			unit = "MiB-seconds"
		}
		r.addColumns([3]string{strings.ReplaceAll(name, "/", "_"), "int", unit})
	}
	r.addColumns([3]string{"Cost", "text", rates.Currency})
	exact := make([]*big.Int, len(list))
	used := make([][]*big.Int, len(query.Charged()))
	for i, c := range list {
		exact[i] = c.cost
		for k := range used {
			used[k] = append(used[k], c.used[k])
		}
	}
	// Costs are rounded to millionths, amounts to seconds.
	cost, _ := kpi.Apportion(exact, new(big.Int).Div(costScale(), big.NewInt(1_000_000)))
	for k := range used {
		used[k], _ = kpi.Apportion(used[k], big.NewInt(1_000_000))
	}
	for i, c := range list {
		cells := []any{c.account, c.user, int64(c.runs)}
		for k := range used {
			cells = append(cells, used[k][i].Int64())
		}
		q, rest := new(big.Int).DivMod(cost[i], big.NewInt(1_000_000), new(big.Int))
		r.addRow(append(cells, fmt.Sprintf("%d.%06d", q, rest))...)
	}
	return nil
}
