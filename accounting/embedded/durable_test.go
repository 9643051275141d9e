package embedded

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/clickhouse-go/v2"
)

// TestKillDuringInserts kills the engine again and again while batches go in. Every batch is retried with its own
// deduplication token until it is acknowledged, as the ingester does. At the end each row is there once.
func TestKillDuringInserts(t *testing.T) {
	s := startEngine(t, Options{})
	const writers, rowsPerBatch = 4, 50
	kills := 5
	if os.Getenv("MUSTER_LONG") == "" {
		kills = 2
	}
	c := open(t, clientOptions(s.Socket()))
	mustExec(t, c, `CREATE TABLE ledger (writer UInt32, batch UInt32, row UInt32) ENGINE = MergeTree ORDER BY (writer, batch, row)
		SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, non_replicated_deduplication_window = 10000`)
	var (
		wg       sync.WaitGroup
		stop     atomic.Bool
		acked    [writers]uint32
		retries  atomic.Int64
		progress atomic.Int64
	)
	for w := range uint32(writers) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			conn := open(t, clientOptions(s.Socket()))
			for batch := uint32(0); !stop.Load(); batch++ {
				for insertBatch(conn, w, batch, rowsPerBatch) != nil {
					retries.Add(1)
					waitFor(t, "the engine", s.Ready)
				}
				acked[w] = batch + 1
				progress.Add(1)
			}
		}()
	}
	for range kills {
		seen := progress.Load()
		waitFor(t, "batches", func() bool { return progress.Load() > seen+20 })
		pid := s.PID()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "another engine", func() bool { return s.PID() != pid && s.Ready() })
	}
	stop.Store(true)
	wg.Wait()
	var lost, double, want uint64
	for w, batches := range acked {
		want += uint64(batches) * rowsPerBatch
		lost += uint64(batches)*rowsPerBatch - one[uint64](t, c, "SELECT uniqExact(batch, row) FROM ledger WHERE writer = ?", w)
	}
	double = one[uint64](t, c, "SELECT toUInt64(count() - uniqExact(writer, batch, row)) FROM ledger")
	t.Logf("%d kills, %d rows acknowledged, %d batches sent again, %d rows lost, %d double", kills, want, retries.Load(), lost, double)
	if lost != 0 || double != 0 || want == 0 {
		t.Errorf("%d rows lost, %d double, of %d", lost, double, want)
	}
	if int(s.Restarts()) != kills {
		t.Errorf("%d restarts, want %d", s.Restarts(), kills)
	}
}

func insertBatch(c clickhouse.Conn, writer, batch, rows uint32) error {
	ctx := clickhouse.Context(context.Background(), clickhouse.WithSettings(clickhouse.Settings{
		"insert_deduplication_token": fmt.Sprintf("ledger:%d:%d", writer, batch)}))
	b, err := c.PrepareBatch(ctx, "INSERT INTO ledger")
	if err != nil {
		return err
	}
	for row := range rows {
		if err := b.Append(writer, batch, row); err != nil {
			return err
		}
	}
	return b.Send()
}

// TestTruncatedInsert breaks off bodies at many places; nothing of them may be committed.
func TestTruncatedInsert(t *testing.T) {
	s := startEngine(t, Options{})
	c := open(t, clientOptions(s.Socket()))
	mustExec(t, c, "CREATE TABLE cut (a UInt64) ENGINE = MergeTree ORDER BY a")
	block := append([]byte("\x01\x05\x01a\x06UInt64"), make([]byte, 5*8)...) // one column, five rows
	w := compress.NewWriter(0, compress.LZ4)
	if err := w.Compress(block); err != nil {
		t.Fatal(err)
	}
	plain := strings.Repeat(string(block), 3)
	packed := strings.Repeat(string(w.Data), 3)
	query := "/?query=" + url.QueryEscape("INSERT INTO cut FORMAT Native")
	send := func(path, head, body string) string {
		conn, err := net.Dial("unix", s.Socket())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("POST " + path + " HTTP/1.1\r\nHost: x\r\n" + head + "\r\n\r\n" + body)); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(conn).ReadString('\n') // the server may answer, or not
		return line
	}
	chunk := func(data string) string {
		if data == "" {
			return ""
		}
		return strconv.FormatInt(int64(len(data)), 16) + "\r\n" + data + "\r\n"
	}
	tries := 0
	for name, whole := range map[string]struct{ path, body string }{"plain": {query, plain}, "packed": {query + "&decompress=1", packed}} {
		cuts := map[int]bool{}
		for i := range len(whole.body) + 1 {
			if i < 30 || i%len(block) < 2 || i%len(w.Data) < 2 || i%7 == 0 || i == len(whole.body) {
				cuts[i] = true
			}
		}
		for at := range cuts {
			tries++
			// Chunked without its last chunk, at frame and block ends too: only the missing end tells.
			if line := send(whole.path, "Transfer-Encoding: chunked", chunk(whole.body[:at])); strings.Contains(line, " 200 ") {
				t.Errorf("%s, chunked, cut at %d: %s", name, at, line)
			}
			if at == len(whole.body) {
				continue
			}
			if line := send(whole.path, "Content-Length: "+strconv.Itoa(len(whole.body)), whole.body[:at]); strings.Contains(line, " 200 ") {
				t.Errorf("%s, with a length, cut at %d: %s", name, at, line)
			}
		}
	}
	if got := one[uint64](t, c, "SELECT count() FROM cut"); got != 0 {
		t.Fatalf("%d rows of bodies that were cut short", got)
	}
	for _, path := range []string{query, query + "&decompress=1"} {
		body := plain
		if strings.Contains(path, "decompress") {
			body = packed
		}
		if line := send(path, "Transfer-Encoding: chunked", chunk(body)+"0\r\n\r\n"); !strings.Contains(line, " 200 ") {
			t.Errorf("a whole body: %s", line)
		}
	}
	if got := one[uint64](t, c, "SELECT count() FROM cut"); got != 30 {
		t.Errorf("%d rows of whole bodies, want 30", got)
	}
	t.Logf("%d places", tries)
}

// TestNoLeak runs statements of all kinds, good and bad, and looks at what the engine process holds.
func TestNoLeak(t *testing.T) {
	s := startEngine(t, Options{})
	c := open(t, clientOptions(s.Socket()))
	mustExec(t, c, "CREATE TABLE leak (a UInt64) ENGINE = Memory SETTINGS max_rows_to_keep = 100")
	rounds := 1000
	if os.Getenv("MUSTER_LONG") == "" {
		rounds = 100
	}
	one10 := func() { // ten statements
		ctx := t.Context()
		for range 3 {
			one[uint8](t, c, "SELECT 1")
		}
		one[uint64](t, c, "SELECT count() FROM leak")
		if c.Exec(ctx, "SELECT * FROM nowhere") == nil || c.Exec(ctx, "SELEKT") == nil {
			t.Fatal("a bad statement was good")
		}
		rows, err := c.Query(ctx, "SELECT number, throwIf(number = 100000) FROM numbers(200000)")
		if err == nil {
			for rows.Next() {
			}
			err = rows.Err()
		}
		if err == nil {
			t.Fatal("a bad statement was good")
		}
		mustExec(t, c, "INSERT INTO leak VALUES (1)")
		b, err := c.PrepareBatch(ctx, "INSERT INTO leak") // with its DESCRIBE
		if err == nil {
			if err = b.Append(uint64(1)); err == nil {
				err = b.Send()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range rounds / 4 { // caches, pools and arenas fill
		one10()
	}
	threads, files, before := usage(t, s.PID())
	for range rounds {
		one10()
	}
	threadsAfter, filesAfter, after := usage(t, s.PID())
	t.Logf("%d statements: resident %d -> %d MiB, threads %d -> %d, files %d -> %d", rounds*10, before>>20, after>>20, threads, threadsAfter, files, filesAfter)
	// A kilobyte lost per statement would be 10 MiB; the engine's arenas breathe by more than that, its results are
	// larger (the failing stream alone holds 1.6 MiB).
	if grown := int64(after) - int64(before); grown > 32<<20 {
		t.Errorf("the engine grew by %d MiB over %d statements", grown>>20, rounds*10)
	}
	if threadsAfter > threads+16 || filesAfter > files+16 {
		t.Errorf("threads %d -> %d, files %d -> %d", threads, threadsAfter, files, filesAfter)
	}
}

// usage reads threads, open files and resident bytes of a process.
func usage(t *testing.T, pid int) (threads, files int, resident uint64) {
	t.Helper()
	dir := "/proc/" + strconv.Itoa(pid)
	tasks, err := os.ReadDir(dir + "/task")
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	statm, err := os.ReadFile(dir + "/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks), len(fds), pages * uint64(os.Getpagesize())
}
