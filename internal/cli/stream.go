package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// idleConn ends a connection on which nothing moves: an answer may be as long as it is, as long as it goes on.
type idleConn struct {
	net.Conn
	limit time.Duration
}

func (c *idleConn) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.limit)) // a closed connection says so itself
	return c.Conn.Read(b)
}

func (c *idleConn) Write(b []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(c.limit)) // of reading too: what was sent last is what the server answers to
	return c.Conn.Write(b)
}

// eachOf calls f for each item of the list under a key of an answer, as they come.
func (o *options) eachOf(resp *http.Response, err error, key string, f func(json.RawMessage) error) error {
	if err != nil {
		return &failure{ExitUnreachable, o.unreachable(err)}
	}
	if resp.StatusCode/100 != 2 {
		_, err := o.answer(resp, nil)
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read to its end, or is of no more use
	err = eachItem(resp.Body, key, f)
	var known *failure
	var syntax *json.SyntaxError
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.As(err, &syntax):
		return refused("the answer of the server is not understood: %w", err)
	}
	return &failure{ExitUnreachable, fmt.Errorf("the answer of the server broke off: %w", err)}
}

func eachItem(r io.Reader, key string, f func(json.RawMessage) error) error {
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
			if err := otherMember(dec, name); err != nil {
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
		return refused("the answer of the server is not understood: %v where %v is expected", token, want)
	}
	return nil
}

// otherMember passes over a member, unless it is the refusal that servers of the contract can hide in a success.
func otherMember(dec *json.Decoder, name json.Token) error {
	var value json.RawMessage
	if err := dec.Decode(&value); err != nil {
		return err
	}
	var text string
	if name == "result" && json.Unmarshal(value, &text) == nil && strings.HasPrefix(text, "Error") {
		return refused("%s", text)
	}
	return nil
}

// rawList prints the items of a list as JSON or YAML, as printRaw prints the whole.
type rawList struct {
	o     *options
	key   string
	count int
}

func (l *rawList) add(item json.RawMessage) error {
	defer func() { l.count++ }()
	if l.o.output == "yaml" {
		text, err := yaml.JSONToYAML(append(append([]byte{'['}, item...), ']'))
		if err != nil {
			return refused("the answer of the server is not JSON: %w", err)
		}
		head := ""
		if l.count == 0 {
			head = l.key + ":\n"
		}
		return l.o.print(head + string(text))
	}
	head := ",\n        "
	if l.count == 0 {
		head = "{\n    \"" + l.key + "\": [\n        "
	}
	var out bytes.Buffer
	if err := json.Indent(&out, item, "        ", "    "); err != nil {
		return refused("the answer of the server is not JSON: %w", err)
	}
	return l.o.print(head + out.String())
}

func (l *rawList) end() error {
	switch {
	case l.o.output == "yaml" && l.count > 0:
		return nil
	case l.o.output == "yaml":
		return l.o.print(l.key + ": []\n")
	case l.count == 0:
		return l.o.print("{\n    \"" + l.key + "\": []\n}\n")
	}
	return l.o.print("\n    ]\n}\n")
}
