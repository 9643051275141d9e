package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhpc/muster/accounting/query/querytest"
)

// attackSQL asks muster sql for what lies beyond its views, as a user and with
// the texts against which the guard is tested too. Nothing of it may be answered.
func attackSQL(ctx context.Context, l *lab, r *report) error {
	// The guard, and not the lack of an engine, must refuse.
	if out := l.runAs(ctx, attacker, "sql", "-n", "SELECT 40 + 2"); strings.TrimSpace(out.out) != "42" {
		return fmt.Errorf("muster sql does not work: %s", out.allText())
	}
	for _, text := range querytest.Attacks() {
		if strings.ContainsRune(text, 0) {
			continue // which no argument of a command can hold
		}
		out := l.runAs(ctx, attacker, "sql", "-n", text)
		r.countTry(out.code == 0 || strings.Contains(out.allText(), secret), "%q is answered: %s", text, out.allText())
	}
	return nil
}
