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

// htmlName is a name that would run a script if the page used names as HTML.
const htmlName = `<img src=x onerror=document.title='owned'>`

// plotTime is how long traffic runs before pictures are taken: the shortest time range of plots.
const plotTime = time.Minute

// fixture is a load balancer with working and failed services, and a browser in a namespace of its
// own.
type fixture struct {
	*rig.Rig
	*browser.Tab
	t *testing.T
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	r := rig.New(t, rig.Options{Args: []string{"--userservice", "--half-open-max=0", "--ct-max=400000"}})
	f := &fixture{Rig: r, t: t}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"view", "operate"} {
		f.asRoot("create user %s --role=%s --password-file=%s", role, role, file)
	}
	for _, h := range r.Endpoints[:2] {
		if err := h.ServeHTTPWith(":5001", rig.NameHandler(h.Name)); err != nil {
			t.Fatal(err)
		}
	}
	const probed = "--monitor --probe-interval=200ms --probe-retries=1"
	f.asRoot("create lb %s --tcp=80:5001 --name=web --endpoints=31.31.31.1:3,32.32.32.1:2,17.17.17.1:1 %s", rig.VIP4, probed)
	f.asRoot("create lb %s --tcp=443:5001 --name=shop --endpoints=31.31.31.1:1,32.32.32.1:1 %s", rig.VIP4, probed)
	f.asRoot("create lb %s --tcp=8443:5001 --name=admin --endpoints=17.17.17.1:1 %s", rig.VIP4, probed)
	f.asRoot("create lb %s --udp=53:5353 --name=dns --endpoints=31.31.31.1:1,32.32.32.1:1", rig.VIP4)
	f.asRoot("create lb %s --tcp=80:5001 --name=web --endpoints=%s", rig.VIP6, rig.Endpoints6())

	f.keepRequesting()
	if *takeScreenshots {
		time.Sleep(plotTime)
	}
	f.traffic()
	f.asRoot("drain endpoint 32.32.32.1:5001 --deadline=600s")
	b, err := browser.Start(r.LB.Do)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if f.Tab, err = b.Open(1280, 900); err != nil {
		t.Fatal(err)
	}
	f.must(f.Scheme("light"))
	return f
}

// asRoot runs loxicmd over the socket.
func (f *fixture) asRoot(line string, args ...any) string {
	f.t.Helper()
	words := strings.Fields(fmt.Sprintf(line, args...))
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "_", " ")
	}
	out, err := f.Command(append(words, "--socket="+filepath.Join(f.Dir(), "loxilb.sock"))...)
	if err != nil {
		f.t.Fatal(line, out, err)
	}
	return out
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// awaitText waits until the page contains all texts.
func (f *fixture) awaitText(words ...string) {
	f.t.Helper()
	for _, w := range words {
		f.must(f.Until(fmt.Sprintf("document.body.innerText.includes(%q)", w)))
	}
}

// view opens a view and waits until it contains all texts.
func (f *fixture) view(hash string, words ...string) {
	f.t.Helper()
	f.must(f.Eval(fmt.Sprintf("location.hash = %q", hash), nil))
	f.awaitText(words...)
}

// signIn signs a user in.
func (f *fixture) signIn(user string) {
	f.t.Helper()
	f.must(f.Until("document.querySelector('#name')"))
	f.must(f.Eval("document.querySelector('#name').focus()", nil))
	f.must(f.Type(user))
	f.must(f.Press("Tab"))
	f.must(f.Type(password))
	f.must(f.Press("Enter"))
	f.awaitText("Overview", "live")
}

// wantNoErrors fails the test if the console has an entry.
func (f *fixture) wantNoErrors(when string) {
	f.t.Helper()
	for _, e := range f.Errors() {
		f.t.Errorf("%s, the console has: %.500s", when, e)
	}
}

// hasElement reports whether the page has an element.
func (f *fixture) hasElement(selector string) (there bool) {
	f.t.Helper()
	f.must(f.Eval(fmt.Sprintf("Boolean(document.querySelector(%q))", selector), &there))
	return there
}

// keepRequesting sends requests until the test ends, so plots have data.
func (f *fixture) keepRequesting() {
	ctx, stop := context.WithCancel(f.t.Context())
	f.t.Cleanup(stop)
	go func() {
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = f.Client.Get(ctx, rig.Join(rig.VIP4, 80)) // fails while the daemon is down
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

// traffic creates some connections, and some packets that the balancer drops.
func (f *fixture) traffic() {
	f.t.Helper()
	for range 3 {
		for _, port := range []int{80, 443} {
			labtest.Eventually(f.t, rig.Patience, func(context.Context) error {
				_, err := f.Ask(rig.Join(rig.VIP4, port))
				return err
			})
		}
		f.Dial(rig.Join(rig.VIP4, 443))
	}
	labtest.Eventually(f.t, rig.Patience, func(context.Context) error {
		if out := f.asRoot("get endpoint"); !strings.Contains(out, "down") {
			return fmt.Errorf("no endpoint is down:\n%s", out)
		}
		return nil
	})
	f.WantNoAnswer(rig.Join(rig.VIP4, 8443))
}
