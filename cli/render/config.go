package render

import (
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// ConfigValue is the value of a key of the configuration, empty when it is not
// set. The last of several entries holds.
func ConfigValue(config *apiv1.GetConfigReply, key string) string {
	for _, entry := range slices.Backward(config.GetEntries()) {
		if strings.EqualFold(entry.GetKey(), key) {
			return entry.GetValue()
		}
	}
	return ""
}
