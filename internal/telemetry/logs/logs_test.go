package logs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// file returns a file in place of standard error.
func file(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func written(t *testing.T, f *os.File) string {
	t.Helper()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestFlood checks that a message gives at most 100 lines a minute, with any number of callers, and
// that further lines are counted.
//
// P62 Nobody can flood the log, or forge a line of it
func TestFlood(t *testing.T) {
	t.Parallel()
	var memory bytes.Buffer
	err := file(t)
	log, flush := New(slog.LevelInfo, &memory, err)
	var running sync.WaitGroup
	for client := range 10 {
		running.Go(func() {
			for n := range 1000 {
				log.With("key", client).Warn("packets dropped", "reason", "no-endpoint", "service", n)
			}
		})
	}
	running.Wait()
	log.Info("another message")
	flush()
	flush() // reports the count once
	lines := strings.Split(strings.TrimSpace(written(t, err)), "\n")
	if len(lines) != most+2 || memory.Len() != len(written(t, err)) {
		t.Fatalf("%d lines on standard error, %d bytes in memory and %d there", len(lines), memory.Len(), len(written(t, err)))
	}
	want := fmt.Sprintf(`level=WARN msg=%q message="packets dropped" lines=%d since=`, leftOut, 10*1000-most)
	if last := lines[len(lines)-1]; !strings.Contains(last, want) || !strings.Contains(last, " hint=") {
		t.Errorf("the last line is %s", last)
	}
	if !strings.Contains(lines[len(lines)-2], "another message") {
		t.Errorf("another message is left out: %s", lines[len(lines)-2])
	}
}

// ticker is a clock that the test advances.
type ticker struct {
	now time.Time
	due func()
}

func (*ticker) Stop() bool { return true }

// TestPeriods checks that the number of omitted lines is logged a minute after the first, even
// without a further line, and that lines are logged again afterwards.
func TestPeriods(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	clock := &ticker{now: time.Unix(1000, 0)}
	l := newLimit(slog.NewTextHandler(&out, nil))
	l.shared.now = func() time.Time { return clock.now }
	l.shared.after = func(d time.Duration, f func()) interface{ Stop() bool } {
		if d != period-10*time.Second {
			t.Errorf("the summary is logged after %v", d)
		}
		clock.due = f
		return clock
	}
	log := slog.New(l)
	said := func() int { n := strings.Count(out.String(), "\n"); out.Reset(); return n }
	log.Info("x")
	clock.now = clock.now.Add(10 * time.Second)
	for range 2 * most {
		log.Info("x")
		log.Debug("x")
	}
	if n := said(); n != most {
		t.Errorf("%d lines", n)
	}
	clock.due()
	if !strings.Contains(out.String(), fmt.Sprintf("lines=%d ", most+1)) || said() != 1 {
		t.Errorf("omitted lines are reported as: %s", out.String())
	}
	log.Info("x")
	if n := said(); n != 1 {
		t.Errorf("%d lines in the next period", n)
	}
}

// forgeries returns values with which a client or a user could try to forge log lines.
func forgeries() []string {
	return []string{
		"a\ntime=2026-01-01T00:00:00Z level=ERROR msg=forged", "a\r\nmsg=forged", "a\x1b[2J\x1b]0;forged\x07", "a\u202eforged\u2028b", "a\x00\xff\"b\" c=d",
		"x\nPRIORITY=0\nMESSAGE=forged", strings.Repeat("a\n", 1<<20),
	}
}

// TestForgedText checks that a value stays one value, in one line, and is truncated to a limit.
func TestForgedText(t *testing.T) {
	t.Parallel()
	for _, value := range forgeries() {
		err := file(t)
		var memory bytes.Buffer
		log, _ := New(slog.LevelInfo, &memory, err)
		log.With("name", value).Warn("boot file", "note", value, "error", errors.New(value))
		text := written(t, err)
		if strings.Count(text, "\n") != 1 || len(text) > 16*longest {
			t.Errorf("%.40q: %d lines, %d bytes", value, strings.Count(text, "\n"), len(text))
		}
		if i := strings.IndexFunc(strings.TrimSuffix(text, "\n"), func(c rune) bool { return c < ' ' || c == 0x7f || c == 0x202e || c == 0x2028 }); i >= 0 {
			t.Errorf("%.40q: a control character is in the line: %q", value, text[i:])
		}
	}
}

// TestJournal checks that the journal gets each attribute as a field, with any contents, and that
// standard error gets what the journal does not accept.
func TestJournal(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "journal")
	journald, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer journald.Close()
	var lost bytes.Buffer
	h := handler{dialJournal(socket, slog.LevelInfo, slog.NewTextHandler(&lost, nil))}
	log := slog.New(h).With("who", "a b")
	refused := messageOf("boot file: an object is refused")
	buf := make([]byte, 1<<20)
	for _, value := range forgeries() {
		log.Error("boot file: an object is refused", "at", value, "x_1", 7)
		n, err := journald.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		f := parseFields(t, buf[:n])
		at := f["LOXILB_AT"]
		if at != value && !(len(value) > longest && strings.HasPrefix(at, value[:longest/2]) && len(at) < 2*longest) {
			t.Errorf("%.40q became %.40q", value, at)
		}
		for name, want := range map[string]string{
			"PRIORITY": "3", "SYSLOG_IDENTIFIER": "loxilb", "LOXILB_MESSAGE": "boot file: an object is refused", "LOXILB_WHO": "a b", "LOXILB_X_1": "7",
			"LOXILB_HINT": refused.hint, "LOXILB_MEANING": refused.meaning,
		} {
			if f[name] != want {
				t.Errorf("%s is %q, want %q", name, f[name], want)
			}
		}
		if m := f["MESSAGE"]; len(f) != 9 || !strings.HasPrefix(m, "boot file: an object is refused who=\"a b\" at=") || strings.ContainsAny(m, "\n\x1b\x00") {
			t.Errorf("%d fields, the message is %.200q", len(f), m)
		}
	}
	journald.Close()
	log.Info("it is gone")
	if !strings.Contains(lost.String(), `msg="it is gone" who="a b"`) {
		t.Errorf("lost: %s", lost.String())
	}
}

// parseFields reads a datagram as the journal does.
func parseFields(t *testing.T, b []byte) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for len(b) > 0 {
		line, rest, ok := bytes.Cut(b, []byte("\n"))
		if !ok {
			t.Fatalf("no end: %.40q", b)
		}
		name, value, plain := strings.Cut(string(line), "=")
		if !plain {
			n := binary.LittleEndian.Uint64(rest)
			value, rest = string(rest[8:8+n]), rest[8+n+1:]
		}
		if _, twice := fields[name]; twice {
			t.Errorf("field %s is given twice", name)
		}
		fields[name], b = value, rest
	}
	return fields
}

// TestNoJournal checks that standard error counts as the journal's only if it is the file that
// systemd has named.
func TestNoJournal(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"", "1:2", "x"} {
		if openJournal(file(t), stream, slog.LevelInfo, nil) != nil {
			t.Errorf("JOURNAL_STREAM=%s: the journal is written to", stream)
		}
	}
}
