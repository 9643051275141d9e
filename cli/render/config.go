package render

import (
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// ConfigValue is the value of a key of the configuration, empty when it is not
// set. The last of several entries holds.
func ConfigValue(cfg *apiv1.GetConfigReply, key string) string {
	for _, e := range slices.Backward(cfg.GetEntries()) {
		if strings.EqualFold(e.GetKey(), key) {
			return e.GetValue()
		}
	}
	return ""
}
