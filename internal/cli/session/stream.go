package session

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	v1 "loxilb/api/v1"
)

// idleConn ends an idle connection: an answer may be of any length while it makes progress.
type idleConn struct {
	net.Conn
	limit time.Duration
}

func (c *idleConn) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.limit)) // a closed connection fails later
	return c.Conn.Read(b)
}

func (c *idleConn) Write(b []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(c.limit)) // also for reading: the server answers the last request
	return c.Conn.Write(b)
}

// EachOf calls f for each item of the list under a key of an answer, as they arrive, and returns
// the start of the next page, if there is one.
func (o *Options) EachOf(resp *http.Response, err error, key string, f func(json.RawMessage) error) (next string, _ error) {
	if err != nil {
		return "", o.unreachable(err)
	}
	if resp.StatusCode/100 != 2 {
		_, err := o.Answer(resp, nil)
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read to its end, or is no longer needed
	err = eachItem(resp.Body, key, &next, f)
	var known *Failure
	var syntax *json.SyntaxError
	switch {
	case err == nil, errors.As(err, &known):
		return next, err
	case errors.As(err, &syntax):
		return "", Refused("unexpected answer from the server: %w", err)
	}
	return "", &Failure{ExitUnreachable, fmt.Errorf("the server's answer ended early: %w", err)}
}

func eachItem(r io.Reader, key string, next *string, f func(json.RawMessage) error) error {
	dec := json.NewDecoder(r)
	if err := delimiter(dec, '{'); err != nil {
		return err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		if name != key {
			if err := otherMember(dec, name, next); err != nil {
				return err
			}
			continue
		}
		if err := delimiter(dec, '['); err != nil {
			return err
		}
		for dec.More() {
			var item json.RawMessage
			if err := dec.Decode(&item); err != nil {
				return err
			}
			if err := f(item); err != nil {
				return err
			}
		}
		if err := delimiter(dec, ']'); err != nil {
			return err
		}
	}
	return delimiter(dec, '}')
}

func delimiter(dec *json.Decoder, want json.Delim) error {
	token, err := dec.Token()
	switch {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case token != want:
		return Refused("unexpected answer from the server: %v instead of %v", token, want)
	}
	return nil
}

// otherMember skips a member, unless it is the start of the next page, or a refusal that the
// existing loxilb hides in a success.
func otherMember(dec *json.Decoder, name json.Token, next *string) error {
	var value json.RawMessage
	if err := dec.Decode(&value); err != nil {
		return err
	}
	var text string
	if name == "continue" && json.Unmarshal(value, &text) == nil {
		*next = text
	}
	if name == "result" && json.Unmarshal(value, &text) == nil && strings.HasPrefix(text, "Error") {
		return Refused("%s", text)
	}
	return nil
}

// PrintList prints the selected items of the list under a key of an answer unchanged, as they
// arrive; chosen may be nil.
func (o *Options) PrintList(resp *http.Response, err error, key string, chosen func(json.RawMessage) (bool, error)) error {
	list := &rawList{o: o, key: key}
	next, err := o.EachOf(resp, err, key, func(item json.RawMessage) error {
		if chosen != nil {
			if yes, err := chosen(item); err != nil || !yes {
				return err
			}
		}
		return list.add(item)
	})
	if err != nil {
		return err
	}
	return list.end(next)
}

// rawList prints the items of a list one by one, in the format of PrintRaw.
type rawList struct {
	o     *Options
	key   string
	count int
}

func (l *rawList) add(item json.RawMessage) error {
	defer func() { l.count++ }()
	if l.o.Output == "yaml" {
		text, err := yaml.JSONToYAML(append(append([]byte{'['}, item...), ']'))
		if err != nil {
			return Refused("the server's answer is not JSON: %w", err)
		}
		head := ""
		if l.count == 0 {
			head = l.key + ":\n"
		}
		return l.o.Print(head + string(text))
	}
	head := ",\n        "
	if l.count == 0 {
		head = "{\n    \"" + l.key + "\": [\n        "
	}
	var out bytes.Buffer
	if err := json.Indent(&out, item, "        ", "    "); err != nil {
		return Refused("the server's answer is not JSON: %w", err)
	}
	return l.o.Print(head + out.String())
}

// end ends the list, and adds the start of the next page, if there is one.
func (l *rawList) end(next string) error {
	switch {
	case l.o.Output == "yaml" && l.count == 0:
		return l.o.Print(l.key + ": []\n")
	case l.o.Output == "yaml" && next != "":
		return l.o.Print("continue: " + strconv.Quote(next) + "\n")
	case l.o.Output == "yaml":
		return nil
	case l.count == 0:
		return l.o.Print("{\n    \"" + l.key + "\": []\n}\n")
	case next != "":
		return l.o.Print("\n    ],\n    \"continue\": " + strconv.Quote(next) + "\n}\n")
	}
	return l.o.Print("\n    ]\n}\n")
}

// streamIdle bounds the silence of a stream of events: the server sends a line every 15 s.
const streamIdle = 45 * time.Second

// maxEvent bounds the length of an event: an event of rates has a page of services.
const maxEvent = 16 << 20

// Follow requests server-sent events, and shows each until interrupted.
func (o *Options) Follow(ctx context.Context, ask func(*v1.Client, v1.RequestEditorFn) (*http.Response, error), show func(json.RawMessage) error) error {
	o.idle = max(o.wait(), streamIdle)
	client, err := o.Client()
	if err != nil {
		return err
	}
	resp, err := ask(client, func(_ context.Context, r *http.Request) error {
		r.Header.Set("Accept", "text/event-stream")
		return nil
	})
	if err != nil {
		return o.unreachable(err)
	}
	if resp.StatusCode/100 != 2 {
		_, err := o.Answer(resp, nil)
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	if err := o.readEvents(resp.Body, show); ctx.Err() == nil {
		return err
	}
	return nil // interrupted, the normal end
}

// readEvents prints server-sent events until the stream ends.
func (o *Options) readEvents(body io.Reader, show func(json.RawMessage) error) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	var name string
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "event":
			name = value
		case field == "data" && name == "lost":
			var l struct{ Lost uint64 }
			if err := Decode([]byte(value), &l); err != nil {
				return err
			}
			fmt.Fprintf(o.Env.Stderr, "%d events lost: the reader is too slow\n", l.Lost)
		case field == "data" && name == "untold":
			var u struct{ Sampled, Lost uint64 }
			if err := Decode([]byte(value), &u); err != nil {
				return err
			}
			fmt.Fprintf(o.Env.Stderr, "%d events not shown because of sampling, and %d lost: the reader is too slow\n", u.Sampled, u.Lost)
		case field == "data" && name == "end":
			var m v1.Message
			if err := Decode([]byte(value), &m); err != nil {
				return err
			}
			return &Failure{ExitUnreachable, fmt.Errorf("the event stream ended: %s", m.Message)}
		case field == "data":
			if err := show(json.RawMessage(value)); err != nil {
				return err
			}
		}
	}
	err := lines.Err()
	if err == nil {
		err = errors.New("the server closed the connection")
	}
	return &Failure{ExitUnreachable, fmt.Errorf("the event stream ended: %w", err)}
}
