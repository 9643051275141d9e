package format_test

import (
	"fmt"

	"github.com/musterhpc/muster/spec/format"
)

func ExampleParseDuration() {
	for _, text := range []string{"90", "1:30", "2-12", "1-02:03:04"} {
		seconds, err := format.ParseDuration(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s is %s\n", text, format.Duration(seconds))
	}
	// Output:
	// 90 is 01:30:00
	// 1:30 is 00:01:30
	// 2-12 is 2-12:00:00
	// 1-02:03:04 is 1-02:03:04
}
