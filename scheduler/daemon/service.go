package daemon

import "github.com/musterhpc/muster/api/v1/service"

// ClusterService serves users, administrators and their tools. Each noun has a type with
// the calls about it; a call that is not served is refused by the generated code.
type ClusterService struct {
	unserved
	*authority
	*nodeCalls
	*partitionCalls
	*reservationCalls
	*submitCalls
	*jobCalls
	*stepCalls
	*podCalls
	*holdCalls
	*policyCalls
	*crontabCalls
	*triggerCalls
	*tokenCalls
	*eventCalls
	*controllerCalls
}

// unserved is one level deeper than the calls, so that each of them comes before it.
type unserved struct {
	service.UnimplementedClusterServer
}

// NewClusterService makes the service of a controller.
func NewClusterService(controller *Controller) *ClusterService {
	return newService(&head{C: controller})
}

// newService makes the service of a head: the ledger's, or a supposed one.
func newService(at *head) *ClusterService {
	power := &authority{at}
	submit := &submitCalls{power}
	jobs := &jobCalls{power, submit}
	return &ClusterService{
		authority:        power,
		nodeCalls:        &nodeCalls{power},
		partitionCalls:   &partitionCalls{power},
		reservationCalls: &reservationCalls{power},
		submitCalls:      submit,
		jobCalls:         jobs,
		stepCalls:        &stepCalls{power, submit, jobs},
		podCalls:         &podCalls{power, submit},
		holdCalls:        &holdCalls{power},
		policyCalls:      &policyCalls{power},
		crontabCalls:     &crontabCalls{power, submit},
		triggerCalls:     &triggerCalls{power},
		tokenCalls:       &tokenCalls{power},
		eventCalls:       &eventCalls{power},
		controllerCalls:  &controllerCalls{power},
	}
}

// head is the newest state that a service reads and changes.
type head struct {
	C *Controller
	// supposed is set where a copy of the cluster takes the changes.
	supposed *supposition
}

// authority says who calls, and what he may see and change.
type authority struct{ *head }

// nodeCalls are the calls about nodes and what runs on them unasked.
type nodeCalls struct{ *authority }

// partitionCalls are the calls about partitions.
type partitionCalls struct{ *authority }

// reservationCalls are the calls about reservations.
type reservationCalls struct{ *authority }

// submitCalls take jobs in, and reread those that are changed.
type submitCalls struct{ *authority }

// jobCalls are the calls about jobs that were submitted.
type jobCalls struct {
	*authority
	submit *submitCalls
}

// stepCalls are the calls about steps.
type stepCalls struct {
	*authority
	submit *submitCalls
	jobs   *jobCalls
}

// podCalls are the calls about pods that are jobs.
type podCalls struct {
	*authority
	submit *submitCalls
}

// holdCalls are the calls about what other schedulers hold of nodes.
type holdCalls struct{ *authority }

// policyCalls are the calls about accounts, QOS, their limits, use and shares.
type policyCalls struct{ *authority }

// crontabCalls are the calls about crontabs.
type crontabCalls struct {
	*authority
	submit *submitCalls
}

// triggerCalls are the calls about triggers.
type triggerCalls struct{ *authority }

// tokenCalls are the calls about hosts and tokens.
type tokenCalls struct{ *authority }

// eventCalls tell what happened.
type eventCalls struct{ *authority }

// controllerCalls are the calls about the controllers and their configuration.
type controllerCalls struct{ *authority }
