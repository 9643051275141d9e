package timeline

import (
	"slices"

	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// stay is a job on a node for a span of time.
type stay struct {
	window
	uid    spec.JobUID
	tenant *place.Tenant
}

// TrackTenants makes the timeline keep who is on which node when, so that jobs that
// keep others off their nodes are told apart. It does so on its own where such
// a job runs, be it on a node that the timeline does not have but in a block of
// one that it has; it costs something for each job.
func (t *Timeline) TrackTenants() {
	if t.apart {
		return
	}
	t.apart = true
	t.near = place.Neighbours(t.st)
	for _, lane := range t.lanes {
		if lane == nil {
			continue
		}
		for _, uid := range lane.node.Jobs {
			job := t.st.Job(uid)
			if i := job.Alloc.Index(lane.node.ID); i < 0 || job.Done.Has(i) {
				continue
			}
			tenant := place.TenantOf(job)
			lane.stays = append(lane.stays, stay{window{t.now, t.expectedEnd(job)}, uid, &tenant})
		}
	}
}

// enterPart notes that a job is on the node of a part.
func (t *Timeline) enterPart(part *place.Part, from, to spec.Instant, uid spec.JobUID) {
	if !t.apart || part.Tenant == nil {
		return
	}
	lane := t.lanes[part.Node.ID]
	lane.stays = append(lane.stays, stay{window{from, to}, uid, part.Tenant})
	t.touchNear(part.Node.ID)
}

// leavePart is the reverse of enter. A stay that was cut short is not found, and
// needs not be.
func (t *Timeline) leavePart(part *place.Part, from, to spec.Instant, uid spec.JobUID) {
	if !t.apart {
		return
	}
	lane := t.lanes[part.Node.ID]
	i := slices.IndexFunc(
		lane.stays,
		func(s stay) bool { return s.uid == uid && s.from == from && s.to == to },
	)
	if i >= 0 {
		lane.stays = slices.Delete(lane.stays, i, i+1)
		t.touchNear(part.Node.ID)
	}
}

// cutStay lets a job that was told to end be gone at an instant.
func (t *Timeline) cutStay(id spec.NodeID, uid spec.JobUID, at spec.Instant) {
	for i := range t.lanes[id].stays {
		if s := &t.lanes[id].stays[i]; s.uid == uid {
			s.to = min(s.to, at)
			t.touchNear(id)
		}
	}
}

// touchNear marks the nodes near one as changed: those on which a job that keeps
// its block for itself meets what is on it.
func (t *Timeline) touchNear(id spec.NodeID) {
	if t.near == nil {
		return
	}
	for _, other := range t.near[id] {
		if t.Usable(other) {
			t.changed = append(t.changed, t.changedThroughout(other))
		}
	}
}

// strangerWindows are the times at which a tenant cannot be on a node because of the
// others there, or in its block, in order and apart from each other.
func (t *Timeline) strangerWindows(id int32, who *place.Tenant, gone []spec.JobUID) []Window {
	if !t.apart {
		return nil
	}
	var windows []Window
	if who.Apart != 0 && len(t.lanes[id].node.Holds) > 0 {
		windows = append(
			windows,
			Window{t.now, spec.FarFuture},
		) // nobody knows when the other scheduler leaves
	}
	for _, s := range t.lanes[id].stays {
		if !who.With(s.tenant) && !slices.Contains(gone, s.uid) {
			windows = append(windows, Window{s.from, s.to})
		}
	}
	if t.near != nil {
		for _, other := range t.near[id] {
			switch {
			case int32(other) == id:
				continue
			case !t.Usable(other):
				windows = t.strangersBeyond(windows, other, who, gone)
				continue
			}
			for _, s := range t.lanes[other].stays {
				if (who.Apart|s.tenant.Apart)&spec.ApartTopo != 0 && !slices.Contains(gone, s.uid) {
					windows = append(windows, Window{s.from, s.to})
				}
			}
		}
	}
	if len(windows) > 1 {
		windows = Merge(windows)
	}
	return windows
}

// strangersBeyond is strangers for a node that the timeline does not have: who runs
// there is known, if nothing else.
func (t *Timeline) strangersBeyond(
	windows []Window,
	id spec.NodeID,
	who *place.Tenant,
	gone []spec.JobUID,
) []Window {
	node := t.st.NodeByID(id)
	if node == nil {
		return windows
	}
	for _, uid := range node.Jobs {
		if job := t.st.Job(uid); (who.Apart|job.Alloc.Apart)&spec.ApartTopo != 0 &&
			!slices.Contains(gone, uid) {
			windows = append(windows, Window{t.now, t.expectedEnd(job)})
		}
	}
	return windows
}

// pickyBeyond tells whether a job that keeps its block for itself runs on a node
// that the timeline does not have: one out of service, or not looked at.
func (t *Timeline) pickyBeyond() bool {
	if !t.st.Config.HasBlocks() {
		return false
	}
	for id := range t.lanes {
		if t.lanes[id] != nil {
			continue
		}
		node := t.st.NodeByID(spec.NodeID(id))
		if node == nil {
			continue
		}
		for _, uid := range node.Jobs {
			if t.st.Job(uid).Alloc.Apart&spec.ApartTopo != 0 {
				return true
			}
		}
	}
	return false
}

// lastStranger is the job that is the last to go by an instant of those with
// which the job of a part cannot be; 0 if there is none.
func (t *Timeline) lastStranger(part *place.Part, at spec.Instant) spec.JobUID {
	if !t.apart || part.Tenant == nil {
		return 0
	}
	var last stay
	look := func(l *lane, meets func(s *stay) bool) {
		for i := range l.stays {
			if s := &l.stays[i]; s.to <= at && s.to > last.to && meets(s) {
				last = *s
			}
		}
	}
	look(t.lanes[part.Node.ID], func(s *stay) bool { return !part.Tenant.With(s.tenant) })
	if t.near != nil {
		for _, id := range t.near[part.Node.ID] {
			if t.Usable(id) {
				look(
					t.lanes[id],
					func(s *stay) bool { return (part.Tenant.Apart|s.tenant.Apart)&spec.ApartTopo != 0 },
				)
			}
		}
	}
	return last.uid
}
