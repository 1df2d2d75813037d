// Package browser controls a real Chromium without a window, by its DevTools protocol over a pipe.
// It opens no port, and needs no other program.
package browser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// patience limits the time until an answer of the browser.
const patience = 20 * time.Second

// Browser is a running Chromium.
type Browser struct {
	cmd  *exec.Cmd
	dir  string
	to   *os.File
	from *os.File

	mu      sync.Mutex
	last    int
	answers map[int]chan message
	tabs    map[string]*Tab
	broken  error
}

// message is a command, its answer, or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts a browser with a new profile. in calls the function that starts the process, for
// example in a network namespace.
func Start(in func(start func() error) error) (b *Browser, err error) {
	b = &Browser{answers: map[int]chan message{}, tabs: map[string]*Tab{}}
	if b.dir, err = os.MkdirTemp("", "browser"); err != nil {
		return nil, err
	}
	theirIn, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b.to, b.from = to, from
	b.cmd = exec.Command("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars", "--force-color-profile=srgb", "--font-render-hinting=none",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe", "--user-data-dir="+b.dir, "about:blank")
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	b.cmd.Env = append(os.Environ(), "HOME="+b.dir, "LANG=C.UTF-8", "TZ=UTC")
	err = in(b.cmd.Start)
	_, _ = theirIn.Close(), theirOut.Close()
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("start chromium: %w", err)
	}
	go b.read()
	return b, nil
}

// Close ends the browser and removes its profile.
func (b *Browser) Close() {
	_ = b.to.Close() // the browser ends when its input is closed
	if b.cmd.Process != nil {
		done := make(chan struct{})
		go func() { _ = b.cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(3 * time.Second):
		}
		_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) // its own group alone
		<-done
	}
	_ = b.from.Close()
	_ = os.RemoveAll(b.dir)
}

// read distributes the browser's messages until it ends.
func (b *Browser) read() {
	in := bufio.NewReaderSize(b.from, 1<<20)
	for {
		data, err := in.ReadBytes(0)
		if err != nil {
			b.fail(err)
			return
		}
		var m message
		if err := json.Unmarshal(data[:len(data)-1], &m); err != nil {
			b.fail(err)
			return
		}
		b.mu.Lock()
		answer, tab := b.answers[m.ID], b.tabs[m.Session]
		delete(b.answers, m.ID)
		b.mu.Unlock()
		switch {
		case answer != nil:
			answer <- m
		case tab != nil:
			tab.happened(&m)
		}
	}
}

func (b *Browser) fail(err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("the browser has ended")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = err
	for id, answer := range b.answers {
		delete(b.answers, id)
		close(answer)
	}
}

// call sends a command and waits for its answer.
func (b *Browser) call(session, method string, params, result any) error {
	sent, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan message, 1)
	b.mu.Lock()
	b.last++
	m := message{ID: b.last, Method: method, Session: session, Params: sent}
	b.answers[m.ID] = answer
	data, err := json.Marshal(m)
	if err == nil && b.broken != nil {
		err = b.broken
	}
	if err == nil {
		_, err = b.to.Write(append(data, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case got, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: %w", method, b.broken)
		case got.Error != nil:
			return fmt.Errorf("%s: %s", method, got.Error.Message)
		case result == nil:
			return nil
		}
		return json.Unmarshal(got.Result, result)
	case <-time.After(patience):
		return fmt.Errorf("%s: no answer for %v", method, patience)
	}
}
