package findings

// MetricDays is the length of the window, in days, that metrics of findings are about.
const MetricDays = 7

// MaxMetrics is how many findings metrics show.
const MaxMetrics = 30

// Found is what was found in a window and what became of the findings of the one before,
// as metrics show it.
type Found struct {
	List []Finding // ranked, at most MaxMetrics
	// SavedGPU is how many GPU microseconds less were wasted than at the rate of the window
	// before.
	SavedGPU int64
}

// Sum makes a Found of what was seen in two windows of equal length.
func Sum(before, now Seen, price Price) *Found {
	list := Find(now)
	Rank(list, price)
	found := &Found{List: list[:min(len(list), MaxMetrics)]}
	for _, followed := range FollowUp(Find(before), now, price) {
		if followed.Resource == GPUTime {
			found.SavedGPU += followed.Saved
		}
	}
	return found
}
