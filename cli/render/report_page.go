package render

import (
	"fmt"
	"strings"
)

// Draw writes a share as [|||    ] 43.2 %.
func (b Bar) Draw() string {
	if b.Share == nil {
		return "[" + strings.Repeat(" ", barWidth/2-6) + "not measured" +
			strings.Repeat(" ", barWidth/2-6) + "]      - "
	}
	n := int(min(1, max(0, *b.Share))*barWidth + 0.5)
	return "[" + strings.Repeat("|", n) + strings.Repeat(" ", barWidth-n) +
		fmt.Sprintf("] %5.1f %%", 100**b.Share)
}
