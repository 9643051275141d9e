package timeline

// RankAlways ranks every list of nodes as soon as it is asked about a second time.
func (t *Timeline) RankAlways() { t.ranking = rankingRule{} }
