package query

import (
	"slices"
	"strings"
)

// Tree asks the engine how it reads a user's text: one line a node of its
// syntax tree, a space more for each level.
func Tree(text string) Query {
	return Query{SQL: "EXPLAIN AST SELECT * FROM (\n" + text + "\n)"}
}

// Names asks for what a name without a view or WITH behind it could mean: the
// databases, and the tables of the store's own.
func Names(scope Scope) Query {
	return Query{
		SQL:    "SELECT name FROM system.databases UNION ALL SELECT name FROM system.tables WHERE database = {db:String}",
		Params: []Param{{"db", scope.Database}},
	}
}

// CheckTree is the second wall of muster sql, behind Guard: whatever Guard took
// a text for, in the tree that the engine makes of it each list of tables and
// each right side of IN holds only views that the viewer sees, names that mean
// nothing in the store (those of WITH) and questions in brackets.
//
// A name with a line break can add lines to the tree, and so have a question
// refused. It cannot take one away.
func CheckTree(lines []string, viewer Viewer, names []string) error {
	sees := viewer.Sees()
	path := []string{} // the nodes above, by depth
	nth := []int{}     // how many children of each level came, by depth
	for _, line := range lines {
		node := strings.TrimLeft(line, " ")
		depth := len(line) - len(node)
		if depth > len(path) {
			return refuseSQL("the engine reads it otherwise than it looks")
		}
		for len(nth) <= depth {
			nth = append(nth, 0)
		}
		nth[depth]++
		nth = nth[:depth+1]
		path = append(path[:depth], node)
		kind, name := treeNode(node)
		above, list := at(path, depth-1), at(path, depth-2)
		isMemberList := strings.HasPrefix(above, "ExpressionList") && membershipFunctions(list)
		switch {
		case kind == "TableIdentifier" && !isTableName(name, sees, names, true):
			return refuseSQL("%s is no view (muster sql --views lists them)", name)
		case kind == "Identifier" && isMemberList && nth[depth] > 1 && !isTableName(name, sees, names, false):
			return refuseSQL("%s behind IN is no view", name)
		case kind == "Function" && strings.HasPrefix(above, "TableExpression"):
			return refuseSQL("%s is a table function", name)
		case kind == "Set":
			return refuseSQL("it changes a setting")
		}
	}
	return nil
}

func at(path []string, depth int) string {
	if depth < 0 {
		return ""
	}
	return path[depth]
}

// treeNode takes a line of the tree apart: TableIdentifier jobs (alias j).
func treeNode(line string) (kind, name string) {
	kind, name, _ = strings.Cut(line, " ")
	name, _, _ = strings.Cut(name, " (alias ")
	name, _, _ = strings.Cut(name, " (children ")
	return kind, name
}

// membershipFunctions tells the functions that IN becomes.
func membershipFunctions(node string) bool {
	kind, name := treeNode(node)
	return kind == "Function" &&
		slices.Contains(
			[]string{
				"in",
				"notin",
				"globalin",
				"globalnotin",
				"nullin",
				"notnullin",
				"globalnullin",
				"globalnotnullin",
			},
			strings.TrimSuffix(strings.ToLower(name), "ignoreset"),
		)
}

// isTableName tells whether a name may stand where a table can: as a view, or as
// something that the store does not have. A name of two parts is no view; but
// where a column may stand (IN) it may be one of another name of a view.
func isTableName(name string, sees, names []string, table bool) bool {
	first, _, parts := strings.Cut(name, ".")
	if parts {
		return !table && !slices.Contains(names, first)
	}
	return slices.Contains(sees, name) || !slices.Contains(names, name)
}
