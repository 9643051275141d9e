package hostlist_test

import (
	"fmt"

	"github.com/musterhpc/muster/spec/hostlist"
)

func ExampleParse() {
	list, err := hostlist.Parse("gpu[01-03,07],login1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(list.Len(), list.Contains("gpu02"), list.Contains("gpu2"))
	for host := range list.All() {
		fmt.Println(host)
	}
	// Output:
	// 5 true false
	// gpu01
	// gpu02
	// gpu03
	// gpu07
	// login1
}

func ExampleFold() {
	fmt.Println(hostlist.Fold([]string{"n1", "n2", "n3", "m1"}))
	// Output: n[1-3],m1
}

func ExampleExpand_error() {
	_, err := hostlist.Expand("n[1-")
	fmt.Println(err)
	// Output: invalid host list "n[1-": '[' without ']' at position 2
}
