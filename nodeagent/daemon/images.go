package daemon

import (
	"context"
	"errors"
	"slices"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// launchRuns hands runs to the launcher: at once, or when their images are here.
func (a *Agent) launchRuns(ctx context.Context, runs []plan.RunSpec) {
	now := make([]plan.RunSpec, 0, len(runs))
	for i := range runs {
		switch {
		case runs[i].Container == nil:
			now = append(now, runs[i])
		case runs[i].Container.Own && !runs[i].Container.Bundle:
			runs[i].Contain(&plan.Unpacked{})
			now = append(now, runs[i])
		default:
			a.fetchImage(ctx, &runs[i])
		}
	}
	a.launches.putRuns(now)
}

// errNoImages: this agent has no place for images.
var errNoImages = errors.New(
	"containers of registries and of bundles cannot be started on this node: its agent is not root",
)

// fetchImage gets the image of a run in a goroutine of its own, and then hands the run
// to the launcher. A run whose image cannot be had is over: it would fail on the
// next node too.
func (a *Agent) fetchImage(ctx context.Context, run *plan.RunSpec) {
	if a.fetching[run.Key] != nil {
		return
	}
	wait, cancel := context.WithCancel(ctx)
	a.fetching[run.Key] = cancel
	spec := *run
	a.wg.Go(func() {
		image, err := (*plan.Unpacked)(nil), errNoImages
		switch {
		case a.deps.Images == nil:
		case spec.Container.Bundle:
			image, err = a.deps.Images.ReadBundle(wait, ImageAsk{
				Image:  spec.Container.Image,
				UID:    spec.UID,
				GID:    spec.GID,
				Groups: spec.Groups,
			})
		default:
			image, err = a.deps.Images.Fetch(wait, ImageAsk{
				Image:     spec.Container.Image,
				Digest:    spec.Container.Digest,
				Holder:    spec.Key.String(),
				LoginFile: spec.Container.LoginFile,
				UID:       spec.UID,
				GID:       spec.GID,
				Groups:    spec.Groups,
			})
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
		a.inbox.putItems(func() { a.takeFetched(spec, image, err) })
	})
}

// takeFetched goes on with a run whose image is here, or ends one whose image is not
// to be had.
func (a *Agent) takeFetched(run plan.RunSpec, image *plan.Unpacked, err error) {
	if a.fetching[run.Key] == nil {
		return // it is not to begin any more
	}
	delete(a.fetching, run.Key)
	if err != nil {
		a.log.Warn(
			"the image of a run cannot be had",
			aboutKey(run.Key, run.JobID),
			"image",
			run.Container.Image,
			"error",
			err,
		)
		now := a.deps.Clock.Now()
		a.core.Heard(
			[]plan.Event{
				{
					Exited: &plan.Exit{
						Key:     run.Key,
						Code:    1,
						Failure: plan.FailContainer,
						Message: err.Error(),
						Start:   now,
						End:     now,
					},
				},
			},
		)
		return
	}
	a.log.Info(
		"image",
		aboutKey(run.Key, run.JobID),
		"image",
		run.Container.Image,
		"digest",
		image.Digest,
	)
	if !run.Container.Bundle { // its files are the user's, and have no digest
		a.core.ImageResolved(&run, image.Digest)
	}
	run.Contain(image)
	a.launches.putRuns([]plan.RunSpec{run})
	if a.deps.Images.IsFull() {
		a.relist = true // what is not in use goes once the runs are known
	}
}

// listHolders lists who holds images. It is asked before the runs are, so that a run
// that begins in between is not taken for one that is over.
func (a *Agent) listHolders() []string {
	if a.deps.Images == nil {
		return nil
	}
	out, err := a.deps.Images.Holders()
	if err != nil {
		a.log.Warn("the users of images are not known", "error", err)
	}
	return out
}

// trimImages has images removed that no run needs, where they take too much room.
func (a *Agent) trimImages(holders []string, runs []plan.Observed) {
	if a.deps.Images == nil || a.trimming {
		return
	}
	known := map[string]bool{}
	for key := range a.core.runs {
		known[key.String()] = true
	}
	for i := range runs {
		known[runs[i].Key.String()] = true
	}
	over := slices.DeleteFunc(holders, func(h string) bool { return known[h] })
	if len(over) == 0 && !a.deps.Images.IsFull() {
		return
	}
	a.trimming = true
	a.wg.Go(func() {
		said, err := a.deps.Images.Trim(over)
		if len(said) > 0 {
			a.log.Info("images were removed", said...)
		}
		if err != nil {
			a.log.Warn("images could not be removed", "error", err)
		}
		a.inbox.putItems(func() { a.trimming = false })
	})
}

// abandonImage gives up the image of a run that is not to begin. It tells whether there
// was one.
func (a *Agent) abandonImage(key plan.RunKey) bool {
	cancel := a.fetching[key]
	if cancel == nil {
		return false
	}
	cancel()
	delete(a.fetching, key)
	return true
}
