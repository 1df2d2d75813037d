package page_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/browser"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// base is the address of the page.
const base = "http://127.0.0.1:11111/"

const password = "correct-horse"

// nasty is a name that would run a script if the page treated names as HTML.
const nasty = `<img src=x onerror=document.title='owned'>`

// plotted is how long traffic runs before pictures are taken: the shortest range of plots.
const plotted = time.Minute

// scene is a load balancer with services in good and bad states, and a browser on a machine of its
// own.
type scene struct {
	*rig.Rig
	*browser.Tab
	t *testing.T
}

func newScene(t *testing.T) *scene {
	t.Helper()
	r := rig.New(t, rig.Options{Args: []string{"--userservice", "--half-open-max=0", "--ct-max=400000"}})
	s := &scene{Rig: r, t: t}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"view", "operate"} {
		s.asRoot("create user %s --role=%s --password-file=%s", role, role, file)
	}
	for _, h := range r.Endpoints[:2] {
		if err := h.ServeHTTPWith(":5001", rig.NameHandler(h.Name)); err != nil {
			t.Fatal(err)
		}
	}
	const probed = "--monitor --probe-interval=200ms --probe-retries=1"
	s.asRoot("create lb %s --tcp=80:5001 --name=web --endpoints=31.31.31.1:3,32.32.32.1:2,17.17.17.1:1 %s", rig.VIP4, probed)
	s.asRoot("create lb %s --tcp=443:5001 --name=shop --endpoints=31.31.31.1:1,32.32.32.1:1 %s", rig.VIP4, probed)
	s.asRoot("create lb %s --tcp=8443:5001 --name=admin --endpoints=17.17.17.1:1 %s", rig.VIP4, probed)
	s.asRoot("create lb %s --udp=53:5353 --name=dns --endpoints=31.31.31.1:1,32.32.32.1:1", rig.VIP4)
	s.asRoot("create lb %s --tcp=80:5001 --name=web --endpoints=%s", rig.VIP6, rig.Endpoints6())

	s.requests()
	if *takeScreenshots {
		time.Sleep(plotted)
	}
	s.traffic()
	s.asRoot("drain endpoint 32.32.32.1:5001 --deadline=600s")
	b, err := browser.Start(r.LB.Do)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if s.Tab, err = b.Open(1280, 900); err != nil {
		t.Fatal(err)
	}
	s.ok(s.Scheme("light"))
	return s
}

// asRoot runs loxicmd by the socket.
func (s *scene) asRoot(line string, args ...any) string {
	s.t.Helper()
	words := strings.Fields(fmt.Sprintf(line, args...))
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "_", " ")
	}
	out, err := s.Command(append(words, "--socket="+filepath.Join(s.Dir(), "loxilb.sock"))...)
	if err != nil {
		s.t.Fatal(line, out, err)
	}
	return out
}

func (s *scene) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// shows waits until the page contains these words.
func (s *scene) shows(words ...string) {
	s.t.Helper()
	for _, w := range words {
		s.ok(s.Until(fmt.Sprintf("document.body.innerText.includes(%q)", w)))
	}
}

// view opens a view and waits until it contains words.
func (s *scene) view(hash string, words ...string) {
	s.t.Helper()
	s.ok(s.Eval(fmt.Sprintf("location.hash = %q", hash), nil))
	s.shows(words...)
}

// signIn signs a user in.
func (s *scene) signIn(user string) {
	s.t.Helper()
	s.ok(s.Until("document.querySelector('#name')"))
	s.ok(s.Eval("document.querySelector('#name').focus()", nil))
	s.ok(s.Type(user))
	s.ok(s.Press("Tab"))
	s.ok(s.Type(password))
	s.ok(s.Press("Enter"))
	s.shows("Overview", "live")
}

// wantNoErrors fails the test if the console has an entry.
func (s *scene) wantNoErrors(when string) {
	s.t.Helper()
	for _, e := range s.Errors() {
		s.t.Errorf("%s, the console says: %.500s", when, e)
	}
}

// has reports whether the page has an element.
func (s *scene) has(selector string) (there bool) {
	s.t.Helper()
	s.ok(s.Eval(fmt.Sprintf("Boolean(document.querySelector(%q))", selector), &there))
	return there
}

// requests sends requests all the time, so plots have data.
func (s *scene) requests() {
	ctx, stop := context.WithCancel(s.t.Context())
	s.t.Cleanup(stop)
	go func() {
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = s.Client.Get(ctx, rig.Join(rig.VIP4, 80)) // fails while the daemon is down
			pause := 20 * time.Millisecond
			if n/100%2 == 1 {
				pause = 60 * time.Millisecond
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}()
}

// traffic makes some connections, and some packets that are dropped.
func (s *scene) traffic() {
	s.t.Helper()
	for range 3 {
		for _, port := range []int{80, 443} {
			labtest.Eventually(s.t, rig.Patience, func(context.Context) error {
				_, err := s.Ask(rig.Join(rig.VIP4, port))
				return err
			})
		}
		s.Dial(rig.Join(rig.VIP4, 443))
	}
	labtest.Eventually(s.t, rig.Patience, func(context.Context) error {
		if out := s.asRoot("get endpoint"); !strings.Contains(out, "down") {
			return fmt.Errorf("nothing is down:\n%s", out)
		}
		return nil
	})
	s.WantNoAnswer(rig.Join(rig.VIP4, 8443))
}
