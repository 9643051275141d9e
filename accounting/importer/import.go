package importer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// Store is the accounting store, as an import needs it.
type Store interface {
	// Ended finds which runs that ended within [from, to] are stored.
	Ended(
		ctx context.Context,
		ledger [16]byte,
		from, to tally.Micros,
	) (uids []uint64, restarts []uint32, err error)
	// Open finds the runs that have not ended, and the largest number of events.
	Open(ctx context.Context, ledger [16]byte) (uids []uint64, restarts []uint32, err error)
	// Totals adds up what is stored of the runs that ended.
	Totals(ctx context.Context, ledger [16]byte) (Totals, error)
}

// Writer stores batches; see package clickhouse.
type Writer interface {
	Write(ctx context.Context, batch *tally.Batch) error
	Position() tally.Position
	// RollUp adds up days that are over; more tells that there are others.
	RollUp(ctx context.Context) (more bool, err error)
}

// Totals are sums over runs that ended: exact, in CPU- and GPU-microseconds.
type Totals struct {
	Runs      uint64
	CPU, GPU  *big.Int
	WaitedFor *big.Int // microseconds from submission to start
}

// zero makes empty sums.
func zero() Totals { return Totals{CPU: new(big.Int), GPU: new(big.Int), WaitedFor: new(big.Int)} }

// wide is a sum of products of numbers that are not negative.
type wide struct{ hi, lo uint64 }

func (w *wide) add(a, b int64) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, low, 0)
	w.hi, _ = bits.Add64(w.hi, high, carry)
}

func (w wide) sum() *big.Int {
	high := new(big.Int).Lsh(new(big.Int).SetUint64(w.hi), 64)
	return high.Add(high, new(big.Int).SetUint64(w.lo))
}

// adding are Totals while they are added up.
type adding struct {
	runs              uint64
	cpu, gpu, waiting wide
}

func (t *adding) add(row *tally.JobRow) {
	t.runs++
	if row.Start == 0 {
		return
	}
	ran := row.End - row.Start - row.Suspended
	t.cpu.add(row.Alloc.CPUs, ran)
	t.gpu.add(row.Alloc.GPUs, ran)
	t.waiting.add(1, row.Start-row.Submit)
}

func (t *adding) totals() Totals { return Totals{t.runs, t.cpu.sum(), t.gpu.sum(), t.waiting.sum()} }

func (t Totals) plus(other Totals) Totals {
	return Totals{
		t.Runs + other.Runs,
		new(big.Int).Add(t.CPU, other.CPU),
		new(big.Int).Add(t.GPU, other.GPU),
		new(big.Int).Add(t.WaitedFor, other.WaitedFor),
	}
}

// Equal compares sums.
func (t Totals) Equal(other Totals) bool {
	return t.Runs == other.Runs && t.CPU.Cmp(other.CPU) == 0 && t.GPU.Cmp(other.GPU) == 0 &&
		t.WaitedFor.Cmp(other.WaitedFor) == 0
}

// Hours are microseconds as hours.
func Hours(n *big.Int) float64 {
	hours, _ := new(big.Float).Quo(new(big.Float).SetInt(n), big.NewFloat(3.6e9)).Float64()
	return hours
}

// ShownRejects is how many rejects are shown where no file takes them.
const ShownRejects = 20

// Reject is a line that was not taken.
type Reject struct {
	Line   int
	Reason string
	Text   string // its beginning
}

// Config is one import.
type Config struct {
	Ledger    [16]byte
	Store     Store
	Writer    Writer
	Columns   []string // empty: the first line names them
	Skip      int      // lines that are not read, for a head with names of its own
	Delimiter string   // empty: |
	Zone      *time.Location
	Cluster   string // where the dump has a column Cluster, lines of others are rejected; empty = all are taken
	Rejected  func(Reject)
	Now       spec.Instant // up to when the dump says everything
	Present   spec.Instant // what is later than it by a day is refused; 0 = Now
	From      spec.Instant // what the store's position says until the dump is read to its end; 0 = Now
	Batch     int          // runs that are stored at once; 0 = 100,000
}

// Result is what an import did.
type Result struct {
	Lines, Jobs, Steps   int // read and understood
	New, Open, Known     int // runs that were stored, stored as not ended, and that the store had
	Rejected             int
	Before, Added, After Totals
	First, Last          tally.Micros // ends of the runs read
}

// Reconciled tells whether the store holds what it held and what was added,
// nothing else.
func (r *Result) Reconciled() bool { return r.Before.plus(r.Added).Equal(r.After) }

// Sum adds another result, of an import that followed.
func (r *Result) Sum(other *Result) {
	if r.Added.CPU == nil {
		r.Before, r.Added = other.Before, zero()
	}
	r.Lines += other.Lines
	r.Jobs += other.Jobs
	r.Steps += other.Steps
	r.New += other.New
	r.Open += other.Open
	r.Known += other.Known
	r.Rejected += other.Rejected
	r.Added, r.After = r.Added.plus(other.Added), other.After
}

// run is one import being made.
type run struct {
	Config
	ctx   context.Context
	res   Result
	lines *lines
	cur   *job
	chunk []*job
	het   []*job // components of the heterogeneous job that is being read
	open  map[Key]bool
	seq   uint64
	added adding

	// known are the runs of the chunk being prepared that the store has, before
	// those of the batch that was handed on last, which may be being written still.
	known, before map[Key]bool
	batches       [2]tally.Batch // one is written while the next is prepared
	spare         chan []*job    // of chunks that are prepared, to be read into again
	free          []*job
}

// maxLine bounds a line.
const maxLine = 4 << 20

// Import reads a dump, plain or compressed by gzip, and stores what is new.
func Import(ctx context.Context, config Config, dump io.Reader) (*Result, error) {
	r := &run{Config: config, ctx: ctx, open: map[Key]bool{}, spare: make(chan []*job, 3)}
	r.completeJob()
	text, err := plainText(dump)
	if err != nil {
		return nil, err
	}
	r.res.Before, err = config.Store.Totals(ctx, config.Ledger)
	if err != nil {
		return nil, err
	}
	uids, restarts, err := config.Store.Open(ctx, config.Ledger)
	if err != nil {
		return nil, err
	}
	for i := range uids {
		r.open[Key{uids[i], restarts[i]}] = true
	}
	r.seq = config.Writer.Position().Seq
	err = r.readDump(text)
	r.res.Added = r.added.totals()
	if err != nil {
		return &r.res, err
	}
	r.res.After, err = config.Store.Totals(ctx, config.Ledger)
	if err != nil {
		return &r.res, err
	}
	return &r.res, nil
}

// RollUp adds up the days that were imported, so that reports over them are as
// fast as those of the own cluster. Without it they are as right.
func RollUp(ctx context.Context, writer Writer) error {
	for {
		more, err := writer.RollUp(ctx)
		if err != nil || !more {
			return err
		}
	}
}

func (r *run) completeJob() {
	if r.Delimiter == "" {
		r.Delimiter = "|"
	}
	if r.Zone == nil {
		r.Zone = time.UTC
	}
	if r.Batch <= 0 {
		r.Batch = 100_000
	}
	if r.Rejected == nil {
		r.Config.Rejected = func(Reject) {}
	}
}

// plainText unpacks gzip.
func plainText(dump io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(dump, 1<<20)
	if magic, err := buffered.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return buffered, nil // what is too short to be packed is read as it is
	}
	unzipped, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("unpack the dump: %w", err)
	}
	return unzipped, nil
}

// part is a chunk of jobs, the last of the dump or one before it.
type part struct {
	jobs []*job
	last bool
}

// readDump takes the dump line by line. Reading a chunk, preparing the one before
// it and writing the one before that overlap.
func (r *run) readDump(text io.Reader) error {
	chunks := make(chan part)
	batches := make(chan *tally.Batch)
	done := make(chan error, 2)
	failed := make(chan struct{}) // closed when no more is taken
	stop := sync.OnceFunc(func() { close(failed) })
	go func() {
		defer close(batches)
		err := r.prepareAll(chunks, func(batch *tally.Batch) bool {
			select {
			case batches <- batch:
				return true
			case <-failed:
				return false
			}
		})
		if err != nil {
			stop()
		}
		done <- err
	}()
	go func() {
		var err error
		for batch := range batches {
			err = r.Writer.Write(r.ctx, batch)
			if err != nil {
				stop()
				break
			}
		}
		done <- err
	}()
	err := r.scan(text, func(chunk []*job, last bool) bool {
		select {
		case chunks <- part{chunk, last}:
			return true
		case <-failed:
			return false
		}
	})
	close(chunks)
	return errors.Join(err, <-done, <-done)
}

func (r *run) scan(text io.Reader, hand func(chunk []*job, last bool) bool) error {
	scanner := bufio.NewScanner(text)
	scanner.Buffer(make([]byte, 1<<20), maxLine)
	cells := []string{}
	if len(r.Columns) > 0 {
		columns, err := parseColumns(r.Columns)
		if err != nil {
			return err
		}
		r.lines = newLines(columns, clocks{loc: r.Zone}, r.newJob)
	}
	for number := 1; scanner.Scan(); number++ {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		line := bytes.TrimSuffix(scanner.Bytes(), []byte("\r"))
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if len(line) == 0 {
			continue
		}
		cells = r.splitLine(cells[:0], line)
		if number <= r.Skip {
			continue
		}
		if number == 1 && isHeader(cells) || r.lines == nil {
			if err := r.readHead(cells); err != nil {
				return err
			}
			continue
		}
		r.res.Lines++
		r.takeLine(number, cells, line)
		if len(r.chunk) >= r.Batch && len(r.het) == 0 {
			if !hand(r.chunk, false) {
				return nil // what failed tells why
			}
			r.chunk = make([]*job, 0, r.Batch)
		}
	}
	r.shutJob()
	r.endHet()
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("read the dump after line %d: %w", r.res.Lines, err)
	}
	if len(r.chunk) > 0 {
		hand(r.chunk, true)
	}
	return nil
}

// readHead takes the first line as names of columns.
func (r *run) readHead(cells []string) error {
	if !isHeader(cells) && strings.ContainsRune(strings.Join(cells, ""), 0) {
		return fmt.Errorf(
			"%w: the first line is no text in UTF-8: where it is UTF-16, iconv -f UTF-16 -t UTF-8 makes it so",
			ErrColumns,
		)
	}
	if !isHeader(cells) {
		return fmt.Errorf(
			"%w: the first line does not name them: give them in order with --columns",
			ErrColumns,
		)
	}
	if r.lines != nil {
		return nil // they were given
	}
	if cells[len(cells)-1] == "" { // sacct -p ends lines with the delimiter
		cells = append(cells[:len(cells)-1:len(cells)-1], "-")
	}
	columns, err := parseColumns(cells)
	if err != nil {
		return err
	}
	r.lines = newLines(columns, clocks{loc: r.Zone}, r.newJob)
	return nil
}

// splitLine cuts a line into cells, in CSV with quotes where the delimiter is a
// comma. What follows the last column's beginning is all its own if it is a
// name that people give. The cells share the line's memory.
func (r *run) splitLine(cells []string, bytes []byte) []string {
	line := string(bytes)
	if !utf8.ValidString(line) {
		line = strings.ToValidUTF8(line, "\ufffd")
	}
	if r.Delimiter == "," {
		return splitCSV(cells, line)
	}
	width := 0
	if r.lines != nil && mayHoldDelimiter(r.lines.last) {
		width = r.lines.width
	}
	for {
		i := strings.Index(line, r.Delimiter)
		if i < 0 || (width > 0 && len(cells) == width-1) {
			return append(cells, line)
		}
		cells = append(cells, line[:i])
		line = line[i+len(r.Delimiter):]
	}
}

func splitCSV(cells []string, line string) []string {
	for {
		if strings.HasPrefix(line, `"`) {
			var text strings.Builder
			rest := line[1:]
			for {
				i := strings.IndexByte(rest, '"')
				if i < 0 {
					text.WriteString(rest)
					rest = ""
					break
				}
				text.WriteString(rest[:i])
				rest = rest[i+1:]
				if !strings.HasPrefix(rest, `"`) {
					break
				}
				text.WriteByte('"')
				rest = rest[1:]
			}
			cells = append(cells, text.String())
			if rest == "" {
				return cells
			}
			line = strings.TrimPrefix(rest, ",")
			continue
		}
		cell, rest, more := strings.Cut(line, ",")
		cells = append(cells, cell)
		if !more {
			return cells
		}
		line = rest
	}
}

func (r *run) rejectLine(number int, line []byte, reason string) {
	r.res.Rejected++
	text := string(line[:min(len(line), 200)])
	r.Rejected(Reject{number, reason, strings.ToValidUTF8(text, "\ufffd")})
}

// refuseFuture refuses a run whose time is in the future, by more than clocks differ: it
// would count as waiting, or running, until then.
func (r *run) refuseFuture(row *tally.JobRow) error {
	late := tally.Cut(max(r.Now, r.Present).Add(spec.Day))
	if row.Submit > late || row.Start > late || row.End > late {
		return reject("its time is in the future")
	}
	return nil
}

// otherCluster is the cluster that a line names, where it is another than the one that is imported.
func (r *run) otherCluster(cells []string) string {
	i := r.lines.at[fCluster]
	if r.Cluster == "" || i < 0 || i >= len(cells) || cells[i] == r.Cluster {
		return ""
	}
	return cells[i]
}

// takeLine takes one line: a job, or a step of the job before it.
func (r *run) takeLine(number int, cells []string, line []byte) {
	if other := r.otherCluster(cells); other != "" {
		r.rejectLine(number, line, "it is of cluster "+other)
		return
	}
	if bytes.IndexByte(line, 0) >= 0 {
		r.rejectLine(number, line, "it has a character NUL: the dump is damaged there")
		return
	}
	parsed, step, err := r.lines.parseLine(cells)
	if err == nil {
		err = r.refuseFuture(&parsed.row)
	}
	switch {
	case err != nil:
		if step == "" {
			r.shutJob() // its steps have no job either
		}
		r.rejectLine(number, line, err.Error())
	case step == "":
		r.shutJob()
		parsed.line = number
		r.cur = parsed
		r.res.Jobs++
	case r.cur == nil || r.cur.row.JobID != parsed.steps[0].JobID:
		r.rejectLine(number, line, "it is a step whose job does not stand before it")
	default:
		r.res.Steps++
		r.cur.addStep(parsed)
	}
}

// shutJob ends the job whose steps were being read.
func (r *run) shutJob() {
	if r.cur != nil {
		r.cur.finishSteps()
		if len(r.het) > 0 && r.het[0].row.HetJobID != r.cur.row.HetJobID {
			r.endHet()
		}
		if r.cur.row.HetJobID != 0 {
			r.het = append(r.het, r.cur)
		}
		r.chunk = append(r.chunk, r.cur)
		r.cur = nil
	}
}

// endHet tells the components of a heterogeneous job, which stand together, how
// many there are.
func (r *run) endHet() {
	size := uint32(0)
	for _, component := range r.het {
		size = max(size, component.row.HetOffset+1)
	}
	for _, component := range r.het {
		component.row.HetSize = size
	}
	r.het = r.het[:0]
}

// prepareAll makes batches of chunks and hands on those with something in them.
// The one before it may be being written meanwhile, but none before that.
func (r *run) prepareAll(chunks <-chan part, hand func(*tally.Batch) bool) error {
	count := 0
	for chunk := range chunks {
		batch := &r.batches[count%2]
		if err := r.prepareChunk(batch, chunk); err != nil {
			return err
		}
		if batch.Last < batch.First {
			continue
		}
		if !hand(batch) {
			return nil
		}
		r.known, r.before = r.before, r.known
		count++
	}
	return nil
}

// slab is how many jobs get their memory at once.
const slab = 256

// newJob is an empty job, of a chunk that is prepared if there is one.
func (r *run) newJob() *job {
	if len(r.free) == 0 {
		select {
		case r.free = <-r.spare:
		default:
			list := make([]job, slab)
			for i := range list {
				r.free = append(r.free, &list[i])
			}
		}
	}
	last := len(r.free) - 1
	j := r.free[last]
	r.free = r.free[:last]
	return j
}

// recycleJobs gives the jobs of a chunk back.
func (r *run) recycleJobs(chunk []*job) {
	for _, used := range chunk {
		*used = job{}
	}
	select {
	case r.spare <- chunk:
	default:
	}
}

// prepareChunk makes a batch of what is new of a chunk; where nothing is, it is
// empty.
func (r *run) prepareChunk(batch *tally.Batch, handed part) error {
	chunk := handed.jobs
	var from, until tally.Micros
	for _, ended := range chunk {
		if ended.over {
			if from == 0 || ended.row.End < from {
				from = ended.row.End
			}
			until = max(until, ended.row.End)
		}
	}
	if r.known == nil {
		r.known = make(map[Key]bool, len(chunk))
	}
	clear(r.known)
	if until > 0 {
		uids, restarts, err := r.Store.Ended(r.ctx, r.Ledger, from, until)
		if err != nil {
			return err
		}
		for i := range uids {
			r.known[Key{uids[i], restarts[i]}] = true
		}
		if r.res.First == 0 || from < r.res.First {
			r.res.First = from
		}
		r.res.Last = max(r.res.Last, until)
	}
	now := r.Now
	if r.From != 0 && !handed.last {
		now = r.From
	}
	*batch = tally.Batch{
		First: r.seq + 1,
		At:    now,
		Jobs:  batch.Jobs[:0],
		Live:  batch.Live[:0],
		Nodes: batch.Nodes[:0],
		Steps: batch.Steps[:0],
	}
	batch.Jobs, batch.Nodes = slices.Grow(
		batch.Jobs,
		len(chunk),
	), slices.Grow(
		batch.Nodes,
		len(chunk),
	)
	for _, ended := range chunk {
		r.putRun(batch, ended)
	}
	r.recycleJobs(chunk)
	batch.Last = r.seq
	return nil
}

// putRun adds a run to the batch, unless the store has it.
func (r *run) putRun(batch *tally.Batch, ended *job) {
	key := ended.runKey()
	if r.known[key] || r.before[key] {
		r.res.Known++
		return
	}
	r.seq++
	ended.row.Seq = r.seq
	if !ended.over {
		r.res.Open++
		r.open[key] = true
		batch.Live = append(batch.Live, liveRow(ended))
		return
	}
	r.known[key] = true
	if r.open[key] {
		delete(r.open, key)
		batch.Live = append(batch.Live, tally.LiveRow{JobRow: ended.row, Final: true})
	}
	r.res.New++
	r.added.add(&ended.row)
	batch.Jobs = append(batch.Jobs, ended.row)
	batch.Nodes = ended.spreadOverNodes(batch.Nodes)
	for _, row := range ended.steps {
		row.Seq = r.seq
		batch.Steps = append(batch.Steps, row)
	}
}

// liveRow is a run that has not ended.
func liveRow(open *job) tally.LiveRow {
	row := tally.LiveRow{JobRow: open.row}
	for i, name := range open.nodes {
		part := func(total int64) int64 { return evenPart(total, int64(len(open.nodes)), int64(i)) }
		row.HeldNodes = append(row.HeldNodes, name)
		row.HeldCPUs = append(row.HeldCPUs, part(open.row.Alloc.CPUs))
		row.HeldMem = append(row.HeldMem, part(open.row.Alloc.Mem))
		row.HeldGPUs = append(row.HeldGPUs, part(open.row.Alloc.GPUs))
		row.HeldTo = append(row.HeldTo, 0)
	}
	return row
}

// Columns are those that a live Slurm is asked for, and that a dump should
// have: `sacct -P --format` with these.
func Columns() []string {
	return slices.Clone(
		[]string{
			"JobIDRaw",
			"JobID",
			"Cluster",
			"Partition",
			"QOS",
			"Account",
			"User",
			"UID",
			"Group",
			"GID",
			"State",
			"ExitCode",
			"DerivedExitCode",
			"Submit",
			"Eligible",
			"Start",
			"End",
			"TimelimitRaw",
			"Suspended",
			"NNodes",
			"AllocCPUS",
			"ReqCPUS",
			"ReqMem",
			"ReqTRES",
			"AllocTRES",
			"NodeList",
			"NTasks",
			"TotalCPU",
			"UserCPU",
			"SystemCPU",
			"MaxRSS",
			"TRESUsageInTot",
			"ConsumedEnergyRaw",
			"Reservation",
			"Constraints",
			"Priority",
			"WCKey",
			"AssocID",
			"McsLabel",
			"MaxVMSize",
			"AveCPUFreq",
			"WorkDir",
			"JobName",
		},
	)
}

// mayHoldDelimiter tells whether a column is a text of the user, in which the delimiter may stand.
func mayHoldDelimiter(column field) bool {
	return column == fName || column == fComment || column == fSubmitLine || column == fWorkDir
}
