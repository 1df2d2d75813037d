package page_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"loxilb/internal/netnstest/labtest"
	"loxilb/test/net/rig"
)

// TestPage walks through the page as users do: strangers learn nothing, viewers change nothing, names of users stay text, and what happens shows
// by itself. No view has a barrier that axe-core finds, or an error in its console, in any of four looks.
//
// P60 The page works under a Content-Security-Policy that forbids inline code, foreign hosts and HTML made of text, and without a token it shows nothing of the load balancer.
func TestPage(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ok(s.Go(base))
	s.shows("Sign in")
	s.looks("signin")
	s.refused()

	s.signIn("view")
	s.view("#/service/20.20.20.1:80%2Ftcp", "31.31.31.1:5001", "As asked for")
	if s.has("button.danger") || s.has(".rows button") {
		t.Error("who may only look is offered changes")
	}
	s.ok(s.Eval("document.querySelector('#out').click()", nil))
	s.signIn("operate")
	s.views()
	s.namesAreText()
	s.oddAddresses()
	s.drainByKeyboard()
	s.liveness()
	s.scale()
}

// refused holds that a wrong password is answered by a sentence.
func (s *scene) refused() {
	s.t.Helper()
	s.ok(s.Eval("document.querySelector('#name').focus()", nil))
	s.ok(s.Type("view"))
	s.ok(s.Press("Tab"))
	s.ok(s.Type("wrong"))
	s.ok(s.Press("Enter"))
	s.shows("password")
	if len(s.Errors()) == 0 { // of the request that was refused, which Chromium itself reports
		s.t.Error("the console keeps nothing")
	}
	s.ok(s.Eval("document.querySelector('#name').value = document.querySelector('#password').value = ''", nil))
}

// views looks at each view.
func (s *scene) views() {
	s.t.Helper()
	for _, v := range [][]string{
		{"#/", "overview", "Lately", "degraded", "half-open"}, {"#/services", "services", "Services (5)", "dns"},
		{"#/service/20.20.20.1:80%2Ftcp", "service", "31.31.31.1:5001", "connection refused", "As asked for"},
		{"#/connections?service=20.20.20.1:443%2Ftcp", "connections", "Client", "100.100.100.1"}, {"#/drops", "drops", "no-endpoint", "What to do"},
		{"#/events", "events", "health changed"}, {"#/drains", "drains", "32.32.32.1:5001", "ended"},
		{"#/explain?from=100.100.100.1:40000&to=20.20.20.1:443", "explain", "forwarded", "31.31.31.1:5001"},
		{"#/explain?from=100.100.100.1:40000&to=20.20.20.1:8443", "explain-drop", "no-endpoint", "What to do"},
	} {
		s.view(v[0], v[2:]...)
		s.looks(v[1])
	}
}

// namesAreText holds that a name which would be a program is shown as it is, and that the browser makes HTML of no text here.
func (s *scene) namesAreText() {
	s.t.Helper()
	s.asRoot("create lb %s --tcp=8444:5001 --name=%s --endpoints=17.17.17.1:1", rig.VIP4, strings.ReplaceAll(nasty, " ", "_"))
	s.view("#/services", nasty)
	if s.has("main img") {
		s.t.Error("a name became an element")
	}
	var said string
	s.ok(s.Eval("try { document.body.innerHTML = '<b>x</b>'; 'taken' } catch (e) { e.name }", &said))
	if said != "TypeError" || len(s.Errors()) == 0 {
		s.t.Errorf("innerHTML: %s", said)
	}
}

// oddAddresses holds that what nobody has linked shows something sensible, and that keys get to the content at once.
func (s *scene) oddAddresses() {
	s.t.Helper()
	for hash, words := range map[string]string{"#/constructor": "Lately", "#/service/%": "is not the key of a service", "#/service/1.2.3.4:5%2Ftcp": "does not exist", "#": "Lately"} {
		s.view(hash, words)
	}
	s.view("#/drops", "Packets that")
	s.ok(s.Eval("document.querySelector('.skip').focus()", nil))
	s.ok(s.Press("Enter"))
	s.ok(s.Until("document.activeElement === document.querySelector('main') && document.querySelector('h1').textContent === 'Drops'"))
	for _, e := range s.Errors() {
		// that there are no such services, Chromium reports when it likes
		if !strings.Contains(e, "=%25") && !strings.Contains(e, "=1.2.3.4%3A5%2Ftcp") {
			s.t.Errorf("odd addresses, the console says: %.500s", e)
		}
	}
}

// drainByKeyboard ends a drain, and begins one, by keys alone.
func (s *scene) drainByKeyboard() {
	s.t.Helper()
	s.view("#/drains", "32.32.32.1:5001")
	s.ok(s.Eval("document.querySelector('.card button').focus()", nil))
	s.ok(s.Press("Enter"))
	s.shows("It takes new connections again")
	s.ok(s.Press("Tab", "Enter"))
	s.shows("No endpoint is being drained")
	s.view("#/service/20.20.20.1:443%2Ftcp", "31.31.31.1:5001")
	s.ok(s.Until("document.querySelector('.rows button')"))
	s.ok(s.Eval("document.querySelector('.rows button').focus()", nil))
	s.ok(s.Press("Enter"))
	s.shows("Deadline in seconds")
	s.looks("dialog")
	s.ok(s.Type("9"))
	s.ok(s.Press("Enter"))
	s.shows("End drain")
	if out := s.asRoot("get drain"); !strings.Contains(out, "31.31.31.1:5001") {
		s.t.Errorf("drained: %s", out)
	}
	s.asRoot("undrain endpoint 31.31.31.1:5001")
	s.clean("drains")
}

// liveness holds that what happens shows by itself, and that the page comes back with the daemon.
func (s *scene) liveness() {
	s.t.Helper()
	s.view("#/events", "live")
	s.asRoot("create lb %s --tcp=9000:5001 --name=fresh --endpoints=31.31.31.1:1", rig.VIP4)
	start := time.Now()
	s.shows("service 20.20.20.1:9000/tcp applied")
	if took := time.Since(start); took > 2*time.Second {
		s.t.Errorf("an event shows after %v", took)
	}
	s.clean("live")
	s.Kill()
	s.shows("reconnecting")
	s.Restart()
	s.shows("live")
	s.view("#/services", "fresh")
	labtest.Eventually(s.t, rig.Patience, func(context.Context) error {
		s.Errors() // of requests while nobody answered
		if s.has("#trouble:not([hidden])") {
			return fmt.Errorf("trouble is still told")
		}
		return nil
	})
}
