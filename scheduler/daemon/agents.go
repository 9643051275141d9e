package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// AgentService serves the nodes' agents.
type AgentService struct {
	service.UnimplementedAgentsServer
	C *Controller
}

// Enrol trades a single-use token for a certificate. The token's use is in
// the ledger before the certificate leaves, with the key that it was used for:
// a node that lost the answer asks again with the same key and gets another
// certificate for it.
func (s *AgentService) Enrol(
	ctx context.Context,
	req *apiv1.EnrolRequest,
) (*apiv1.EnrolReply, error) {
	controller := s.C
	used := &tokens{c: controller}
	cert, err := controller.deps.Access.Enrol(
		ctx,
		req.GetToken(),
		req.GetNode(),
		req.GetCsr(),
		used,
	)
	if err != nil {
		return nil, err
	}
	if err := controller.recordCertificate(ctx, cert, used.spent); err != nil {
		return nil, err
	}
	return &apiv1.EnrolReply{Certificate: cert.PEM, Ca: cert.CA}, nil
}

// recordCertificate has a certificate in the ledger before it leaves; token is
// that of an enrolment.
func (c *Controller) recordCertificate(
	ctx context.Context,
	cert Certificate,
	token spec.Hash,
) error {
	ev := event.CertificateIssued{
		Serial:  cert.Serial,
		Role:    cert.Role,
		Name:    cert.Name,
		Expires: cert.Expires,
	}
	return c.writer.commitCommand(
		ctx,
		&request{
			cmd:   scheduler.IssueCertificate{Issued: ev, By: cert.By, Token: token},
			actor: event.Actor{Kind: event.ActorNode, Name: cert.Name},
		},
	).err
}

// tokens are the ledger's enrolment tokens, for one enrolment.
type tokens struct {
	c     *Controller
	spent spec.Hash // the one that was used
}

// Find implements Tokens.
func (t *tokens) Find(hash spec.Hash) (state.Token, bool) {
	for _, tok := range t.c.View().State.Access.Tokens {
		if tok.Hash == hash {
			return tok, true
		}
	}
	return state.Token{}, false
}

// Spend implements Tokens.
func (t *tokens) Spend(ctx context.Context, hash spec.Hash, node string, key spec.Hash) error {
	t.spent = hash
	return t.c.writer.commitCommand(
		ctx,
		&request{cmd: scheduler.SpendToken{Hash: hash, Node: node, Key: key},
			actor: event.Actor{Kind: event.ActorNode, Name: node}},
	).err
}

// Renew gives a node or login host that has a valid certificate a new one.
func (s *AgentService) Renew(
	ctx context.Context,
	req *apiv1.RenewRequest,
) (*apiv1.EnrolReply, error) {
	caller := s.C.deps.Identify(ctx)
	if caller.Node == "" && caller.Login == "" {
		return nil, spec.Refuse(
			spec.CodeAccessDenied,
			"only a node or a login host renews its certificate",
		)
	}
	cert, err := s.C.deps.Access.Renew(ctx, req.GetCsr())
	if err != nil {
		return nil, err
	}
	if err := s.C.recordCertificate(ctx, cert, spec.Hash{}); err != nil {
		return nil, err
	}
	return &apiv1.EnrolReply{Certificate: cert.PEM, Ca: cert.CA}, nil
}

// Configuration gives a node the configuration that this host has.
func (s *AgentService) Configuration(
	ctx context.Context,
	_ *apiv1.ConfigurationRequest,
) (*apiv1.ConfigurationReply, error) {
	if caller := s.C.deps.Identify(ctx); caller.Node == "" && !caller.Admin {
		return nil, spec.Refuse(spec.CodeAccessDenied, "only a node asks for the configuration")
	}
	if s.C.deps.Files == nil {
		return nil, spec.Refuse(spec.CodeDisabled, "this controller has no files to give")
	}
	name, files, err := s.C.deps.Files()
	if err != nil {
		return nil, err
	}
	return &apiv1.ConfigurationReply{Name: name, Files: files}, nil
}

// Holds tells a node what other schedulers have on it, so that what starts their
// programs there can compare. A hold outlives its program, hence an answer that is
// a little old is not wrong about a program that is still there.
func (s *AgentService) Holds(
	ctx context.Context,
	req *apiv1.NodeHoldsRequest,
) (*apiv1.NodeHoldsReply, error) {
	caller := s.C.deps.Identify(ctx)
	own := req.GetNode() != "" && caller.Node == req.GetNode()
	if !own && !caller.Admin {
		return nil, spec.Refuse(
			spec.CodeAccessDenied,
			fmt.Sprintf("this connection may not ask for node %q", req.GetNode()),
		)
	}
	cluster := s.C.View().State
	node := cluster.Node(req.GetNode())
	if node == nil {
		return nil, spec.Refuse(
			spec.CodeInvalidNodeName,
			fmt.Sprintf("there is no node %q", req.GetNode()),
		)
	}
	out := &apiv1.NodeHoldsReply{}
	for i := range node.Holds {
		out.Holds = append(out.Holds, wire.ForeignHold(&node.Holds[i]))
	}
	out.Holds = append(out.Holds, podsOfJobs(cluster, node)...)
	slices.SortFunc(
		out.Holds,
		func(a, b *apiv1.ForeignHold) int { return cmp.Compare(a.GetId(), b.GetId()) },
	)
	return out, nil
}

// podsOfJobs are the pods on a node that Muster has scheduled, with the devices of each.
// What else they have is their job's as a whole.
func podsOfJobs(cluster *state.State, node *state.Node) []*apiv1.ForeignHold {
	var holds []*apiv1.ForeignHold
	for _, uid := range node.Jobs {
		job := cluster.Job(uid)
		if job.Spec.Runner() != spec.ByKubelets {
			continue
		}
		for _, place := range job.Spec.Pods.Places(job.Alloc) {
			if place.Node != node.Spec.Name {
				continue
			}
			holds = append(holds, wire.ForeignHold(&spec.ForeignHold{
				ID:    place.Pod.UID,
				Space: job.Spec.Pods.Space,
				Owner: place.Pod.Name,
				GPUs:  place.GPUs,
				Since: job.Started,
			}))
		}
	}
	return holds
}

// Connect is an agent's stream for as long as it lives.
func (s *AgentService) Connect(stream service.Agents_ConnectServer) error {
	controller := s.C
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	reg := first.GetRegistration()
	caller := controller.deps.Identify(ctx)
	if reg.GetNode() == "" || (caller.Node != reg.GetNode() && !caller.Admin) {
		return spec.Refuse(
			spec.CodeAccessDenied,
			fmt.Sprintf("this connection may not speak for node %q", reg.GetNode()),
		)
	}
	if err := controller.hub.refuseRival(reg.GetNode(), reg.GetPlace()); err != nil {
		return err
	}
	actor := event.Actor{Kind: event.ActorNode, Name: reg.GetNode()}
	dynamic, err := controller.describedNode(reg)
	if err != nil {
		return err
	}
	unknown, lost, err := controller.compareRuns(ctx, reg, actor)
	if err != nil {
		return err
	}
	cmd := scheduler.RegisterNode{
		Node:      reg.GetNode(),
		Inventory: wire.ToInventory(reg.GetInventory()),
		Dynamic:   dynamic,
	}
	if rep := controller.writer.commitCommand(ctx, &request{cmd: cmd, actor: actor}); rep.err != nil {
		return rep.err
	}
	if len(unknown) > 0 {
		// A dynamic node exists only now.
		if err := controller.holdOrphans(ctx, reg.GetNode(), len(unknown)); err != nil {
			return err
		}
		if !controller.hub.wasConnected(reg.GetNode()) {
			controller.recallJobs(ctx, reg.GetNode())
		}
	}
	if err := controller.confirmLead(ctx); err != nil {
		return err
	}
	conn := newAgentConn(reg)
	view, desired := controller.hub.attachConn(conn, reg)
	defer controller.hub.detachConn(conn)
	controller.deps.Logger.Info("a node registered", "node", conn.node, "version", reg.GetVersion())
	welcome := &apiv1.Welcome{
		Cluster:     view.State.ClusterName,
		ClusterUuid: view.State.UUID[:],
		Heartbeat:   int64(controller.hub.heartbeatInterval()),
		KillWait: int64(
			killWait(view.State.Config),
		),
		Now:            int64(controller.deps.Clock.Now()),
		CredentialKeys: controller.deps.Access.Keys(),
		Desired:        desired,
		Revoked:        controller.revokedCertificates(),
		Lead:           view.State.LeadBegan(),
		Lost:           lost,
	}
	for _, run := range unknown {
		welcome.Unknown = append(welcome.Unknown, run.GetRun())
	}
	// The end of either direction, or of the agent's patience with its orders,
	// ends the stream: when this returns, Send and Recv do too.
	ended := make(chan error, 2)
	go func() {
		tell := headed{stream, controller}
		err := tell.Send(
			&apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Welcome{Welcome: welcome}},
		)
		if err == nil {
			err = conn.runSender(ctx, tell, controller)
		}
		ended <- err
	}()
	go func() { ended <- controller.receiveMessage(ctx, stream, conn, actor) }()
	select {
	case err := <-ended:
		return err
	case <-conn.full:
		controller.deps.Logger.Warn(
			"an agent does not read its orders and is cut off",
			"node",
			conn.node,
			"orders",
			maxOrders,
		)
		return spec.Refuse(
			spec.CodeSocketTimeout,
			"the agent does not read its orders: connect again",
		)
	}
}

// headed writes how far the ledger is into every message to an agent: what the
// agent has been given it can bear witness of.
type headed struct {
	stream service.Agents_ConnectServer
	c      *Controller
}

// Send sends a message.
func (h headed) Send(message *apiv1.ControllerMessage) error {
	head := h.c.View().State.Position()
	message.Head = &apiv1.LedgerPosition{
		Epoch:      head.Epoch,
		Seq:        head.Seq,
		NextJobUid: uint64(head.NextUID),
		NextJobId:  uint32(head.NextID),
	}
	return h.stream.Send(message)
}

// Bounds of one message of orders. A message may be somewhat larger than
// maxOrderBytes, since an order is never cut.
const (
	maxOrderCount = 64
	maxOrderBytes = 1 << 20
)

// firstMessage is how many of the orders leave in one message.
func firstMessage(orders []*apiv1.Order) int {
	n, size := 0, 0
	for n < len(orders) && n < maxOrderCount && size < maxOrderBytes {
		size += proto.Size(orders[n])
		if n > 0 && size > maxOrderBytes {
			break
		}
		n++
	}
	return n
}

// runSender writes the queue until the stream or the connection ends. c tells which
// certificates hold no more, and which keys sign credentials.
func (a *agentConn) runSender(ctx context.Context, stream headed, controller *Controller) error {
	for {
		q := a.take()
		if q.barred {
			if err := stream.Send(&apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Revoked{Revoked: controller.revokedCertificates()}}); err != nil {
				return err
			}
		}
		// Before the orders, which may be signed with the new key.
		if q.keyed {
			keys := &apiv1.CredentialKeys{Keys: controller.deps.Access.Keys()}
			if err := stream.Send(&apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Keys{Keys: keys}}); err != nil {
				return err
			}
		}
		if q.grant != nil {
			if err := stream.Send(&apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Grant{Grant: q.grant}}); err != nil {
				return err
			}
		}
		if q.ackDue {
			if err := stream.Send(&apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Ack{Ack: &apiv1.ReportAck{UpTo: q.acked}}}); err != nil {
				return err
			}
		}
		for orders := q.orders; len(orders) > 0; {
			n := firstMessage(orders)
			if err := stream.Send(&apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Orders{Orders: &apiv1.Orders{Orders: orders[:n]}}}); err != nil {
				return err
			}
			orders = orders[n:]
		}
		for _, message := range q.asks {
			if err := stream.Send(
				&apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Measure{Measure: message}},
			); err != nil {
				return err
			}
		}
		for _, query := range q.reads {
			if err := stream.Send(
				&apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_ReadFile{ReadFile: query}},
			); err != nil {
				return err
			}
		}
		if q.reread != nil {
			if err := stream.Send(&apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_ReadConfig{ReadConfig: q.reread}}); err != nil {
				return err
			}
		}
		if q.bye != "" {
			return stream.Send(
				&apiv1.ControllerMessage{
					Kind: &apiv1.ControllerMessage_Goodbye{Goodbye: &apiv1.Goodbye{Reason: q.bye}},
				},
			)
		}
		select {
		case <-a.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// receiveMessage turns what the agent says into commands. Reports are acknowledged
// once they are durable, in order.
func (c *Controller) receiveMessage(
	ctx context.Context,
	stream service.Agents_ConnectServer,
	conn *agentConn,
	actor event.Actor,
) error {
	acks := make(chan pendingAck, 256)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.acknowledgeReports(ctx, conn, acks)
	}()
	defer func() { close(acks); <-done }()
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if measured := message.GetMeasured(); measured != nil {
			c.hub.asks.take(conn.node, measured)
		}
		if read := message.GetFileRead(); read != nil {
			c.hub.reads.take(conn.node, read)
		}
		if read := message.GetConfigRead(); read != nil {
			c.hub.rereads.take(conn.node, read)
		}
		if kept := message.GetKeptOrders(); kept != nil {
			c.orphans.noteKept(conn.node, kept.GetRuns())
		}
		if k := message.GetPrepared(); k != nil {
			c.hub.takePrepared(conn.node, k.GetRun())
		}
		c.takePulse(ctx, conn, message.GetHeartbeat(), actor)
		for _, report := range message.GetReports().GetReports() {
			ack := pendingAck{number: report.GetNumber()}
			if report.GetNodeDone() != nil {
				c.orphanEnded(ctx, conn.node, report.GetRun())
			}
			if fault := report.GetGpuFault(); fault != nil {
				ack.req = &request{
					cmd: scheduler.GPUReport{
						Node:   conn.node,
						Fault:  wire.ToGPUFault(fault),
						Policy: c.deps.Settings.GPU,
					},
					actor: actor,
				}
				if err := c.writer.enqueueCommand(ctx, ack.req); err != nil {
					return nil
				}
			} else if check := report.GetNodeCheck(); check != nil {
				ack.req = &request{
					cmd:   scheduler.CheckReport{Node: conn.node, Failed: check.GetFailed()},
					actor: actor,
				}
				if err := c.writer.enqueueCommand(ctx, ack.req); err != nil {
					return nil
				}
			} else if cmd, ok := reportCommand(conn.node, report); ok {
				if !conn.epochs {
					cmd.Epoch = c.epochOf(cmd.Run.UID)
				}
				ack.req = &request{cmd: cmd, actor: actor}
				if err := c.writer.enqueueCommand(ctx, ack.req); err != nil {
					return nil
				}
			}
			select {
			case acks <- ack:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

type pendingAck struct {
	number uint64
	req    *request // nil: nothing to wait for
}

// acknowledgeReports waits for each report's command in order. A report that could
// not be made durable is not acknowledged, nor is any after it: the agent
// sends them again when it reconnects.
func (c *Controller) acknowledgeReports(
	ctx context.Context,
	conn *agentConn,
	acks <-chan pendingAck,
) {
	failed := false
	for ack := range acks {
		if failed {
			continue
		}
		if ack.req != nil {
			if rep := c.writer.awaitReply(ctx, ack.req); rep.err != nil {
				failed = true
				if ctx.Err() == nil {
					c.deps.Logger.Warn(
						"a report could not be recorded",
						"node",
						conn.node,
						"error",
						rep.err,
					)
					conn.sayGoodbye("reports cannot be recorded now: connect again")
				}
				continue
			}
		}
		conn.ackReports(ack.number)
	}
}

// epochOf fills in the epoch that an agent of an older release leaves out of its
// reports.
func (c *Controller) epochOf(uid spec.JobUID) uint64 {
	if job := c.View().State.Job(uid); job != nil {
		return job.Epoch
	}
	return 0
}

// reportCommand is the command of a report; false for what is no fact.
func reportCommand(node string, report *apiv1.Report) (scheduler.Report, bool) {
	run := scheduler.Run{
		UID:     spec.JobUID(report.GetRun().GetJobUid()),
		Attempt: report.GetRun().GetAttempt(),
	}
	out := scheduler.Report{Node: node, Run: run, Epoch: report.GetRun().GetEpoch()}
	switch k := report.GetKind().(type) {
	case *apiv1.Report_LaunchFailed:
		out.LaunchFailed = &scheduler.LaunchFailed{Text: k.LaunchFailed.GetText(), Drain: k.LaunchFailed.GetDrainNode(),
			Again: plan.Failure(k.LaunchFailed.GetCode()) == plan.NotBegun, Hold: k.LaunchFailed.GetHold()}
	case *apiv1.Report_ImageResolved:
		out.Image = &spec.PinnedImage{
			Image:  k.ImageResolved.GetImage(),
			Digest: k.ImageResolved.GetDigest(),
		}
	case *apiv1.Report_Ended:
		if step := report.GetRun().GetStep(); step >= 0 {
			out.StepOver = &scheduler.StepOver{Step: spec.StepID(step), Result: *wire.ToStepResult(k.Ended), Usage: wire.ToUsage(k.Ended.GetUsage())}
			out.StepOver.Usage.OOMKilled = out.StepOver.Usage.OOMKilled || k.Ended.GetOom()
			return out, true
		} else if step != plan.StepBatch {
			return out, false
		}
		out.BatchOver = &scheduler.BatchOver{Batch: wire.ToStepResult(k.Ended), OOM: k.Ended.GetOom()}
	case *apiv1.Report_NodeDone:
		out.Done = &scheduler.NodeDone{Usage: wire.ToUsage(k.NodeDone.GetUsage()), Batch: wire.ToStepResult(k.NodeDone.GetBatch()), Drain: k.NodeDone.GetDrain()}
		if extern := k.NodeDone.GetExtern(); extern != nil {
			used := wire.ToUsage(extern)
			out.Done.Extern = &used
		}
		if b := k.NodeDone.GetBatch(); b.GetOom() {
			out.Done.OOM = true
			out.Done.Usage.OOMKilled = true
		}
	default:
		return out, false
	}
	return out, true
}
