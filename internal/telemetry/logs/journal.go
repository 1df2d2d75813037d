package logs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// journalSocket is where systemd's journal takes lines with fields.
const journalSocket = "/run/systemd/journal/socket"

// journal is a handler that writes fields: MESSAGE as the line reads, LOXILB_MESSAGE as the
// constant message, and LOXILB_ with the name of each attribute.
//
// It is a few lines without a library: libraries mainly handle messages larger than a datagram, and
// none here is so long.
type journal struct {
	conn  *net.UnixConn
	level slog.Leveler
	attrs []slog.Attr
	lost  slog.Handler // for lines that the journal rejects
}

// openJournal returns nil unless standard error belongs to the journal, according to the variable
// JOURNAL_STREAM.
func openJournal(standardError *os.File, stream string, level slog.Leveler, lost slog.Handler) slog.Handler {
	var s unix.Stat_t
	if unix.Fstat(int(standardError.Fd()), &s) != nil || stream != fmt.Sprintf("%d:%d", s.Dev, s.Ino) {
		return nil
	}
	return dialJournal(journalSocket, level, lost)
}

func dialJournal(socket string, level slog.Leveler, lost slog.Handler) slog.Handler {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil
	}
	return &journal{conn, level, nil, lost}
}

// Enabled reports whether a level is written.
func (j *journal) Enabled(_ context.Context, l slog.Level) bool { return l >= j.level.Level() }

// WithAttrs returns a handler that adds these attributes to its lines.
func (j *journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journal{j.conn, j.level, slices.Concat(j.attrs, attrs), j.lost.WithAttrs(attrs)}
}

// WithGroup returns the same handler: the journal's fields are flat.
func (j *journal) WithGroup(string) slog.Handler { return j }

// Handle writes a line, to standard error if the journal rejects it.
func (j *journal) Handle(ctx context.Context, r slog.Record) error {
	if _, err := j.conn.Write(j.fields(r)); err != nil {
		return j.lost.Handle(ctx, r)
	}
	return nil
}

func (j *journal) fields(r slog.Record) []byte {
	attrs := slices.Clone(j.attrs)
	r.Attrs(func(a slog.Attr) bool { attrs = append(attrs, a); return true })
	var b bytes.Buffer
	field(&b, "MESSAGE", readable(r, attrs))
	field(&b, "PRIORITY", strconv.Itoa(priority(r.Level)))
	field(&b, "SYSLOG_IDENTIFIER", "loxilb")
	field(&b, "LOXILB_MESSAGE", r.Message)
	for _, a := range attrs {
		field(&b, fieldName(a.Key), textOf(a.Value.Resolve()))
	}
	return b.Bytes()
}

// readable formats a line as text without its time and level, which the journal shows itself. It
// quotes special characters.
func readable(r slog.Record, attrs []slog.Attr) string {
	var b bytes.Buffer
	text := slog.NewTextHandler(&b, &slog.HandlerOptions{Level: r.Level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}})
	only := slog.NewRecord(r.Time, r.Level, "", r.PC)
	only.AddAttrs(attrs...)
	_ = text.Handle(context.Background(), only) // into memory
	return strings.TrimRight(r.Message+" "+strings.TrimSuffix(b.String(), "\n"), " ")
}

// field writes a field in the journal's protocol. A value of several lines follows its length, so
// that no line of it is a field.
func field(b *bytes.Buffer, name, value string) {
	b.WriteString(name)
	if !strings.Contains(value, "\n") {
		fmt.Fprintf(b, "=%s\n", value)
		return
	}
	b.WriteByte('\n')
	b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
	b.WriteString(value + "\n")
}

// fieldName returns the name of an attribute as the journal has names: capitals, digits and
// underscores.
func fieldName(key string) string {
	return "LOXILB_" + strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z':
			return c - 'a' + 'A'
		case c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			return c
		}
		return '_'
	}, key)
}

// priority returns the syslog priority of a level.
func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	}
	return 7
}
