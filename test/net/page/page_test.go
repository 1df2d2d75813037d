package page_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestPage walks through the page as users do: without a token it shows nothing, viewers cannot
// change anything, users' names stay text, and changes show without a reload. In each of four
// looks, no view has an accessibility problem that axe-core finds, or an error in its console.
//
// P60 The page works under a Content-Security-Policy that forbids inline code, foreign hosts and
// HTML made of text, and without a token it shows nothing of the load balancer
func TestPage(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.ok(s.Go(base))
	s.shows("Sign in")
	s.checkLooks("signin")
	s.refused()

	s.signIn("view")
	s.view("#/service/20.20.20.1:80%2Ftcp", "31.31.31.1:5001", "Configuration")
	if s.has("button.danger") || s.has(".rows button") {
		t.Error("a viewer is offered changes")
	}
	s.view("#/revisions", "By")
	if s.has(".rows button") {
		t.Error("a viewer is offered to roll back")
	}
	s.ok(s.Eval("document.querySelector('#out').click()", nil))
	s.signIn("operate")
	s.views()
	s.namesAreText()
	s.oddAddresses()
	s.sortedByAge()
	s.drainByKeyboard()
	s.rollBack()
	s.axes()
	s.files()
	s.liveness()
	s.scale()
}

// refused checks that a wrong password is answered by an error message.
func (s *scene) refused() {
	s.t.Helper()
	s.ok(s.Eval("document.querySelector('#name').focus()", nil))
	s.ok(s.Type("view"))
	s.ok(s.Press("Tab"))
	s.ok(s.Type("wrong"))
	s.ok(s.Press("Enter"))
	s.shows("password")
	if len(s.Errors()) == 0 { // Chromium itself logs the refused request
		s.t.Error("the console has no error about the wrong password, so the test would miss errors")
	}
	s.ok(s.Eval("document.querySelector('#name').value = document.querySelector('#password').value = ''", nil))
}

// views checks each view.
func (s *scene) views() {
	s.t.Helper()
	for _, v := range [][]string{
		{"#/", "overview", "Recent events", "degraded", "17.17.17.1:5001: tcp: connection refused", "half-open"}, {"#/services", "services", "Services (5)", "dns"},
		{"#/service/20.20.20.1:80%2Ftcp", "service", "31.31.31.1:5001", "connection refused", "1 ×", "checked", "Median handshake", "< ", "Configuration"},
		{"#/connections?service=20.20.20.1:443%2Ftcp&sort=-age", "connections", "Client", "100.100.100.1", "Age"},
		{"#/clients", "clients", "100.100.100.1", "of 1 client", "100.0 %"},
		{"#/doctor", "doctor", "17.17.17.1:5001 is down", "Fix:", "checks"},
		{"#/revisions", "revisions", "Roll back"}, {"#/cluster", "cluster", "This node is alone"}, {"#/drops", "drops", "no-endpoint", "What to do"},
		{"#/events", "events", "health changed"}, {"#/drains", "drains", "32.32.32.1:5001", "ended"},
		{"#/explain?from=100.100.100.1:40000&to=20.20.20.1:443", "explain", "forwarded", "31.31.31.1:5001"},
		{"#/explain?from=100.100.100.1:40000&to=20.20.20.1:8443", "explain-drop", "no-endpoint", "What to do"},
	} {
		s.view(v[0], v[2:]...)
		s.checkLooks(v[1])
	}
}

// namesAreText checks that a name with HTML is shown as text, and that the browser refuses to make
// HTML of text here.
func (s *scene) namesAreText() {
	s.t.Helper()
	s.asRoot("create lb %s --tcp=8444:5001 --name=%s --endpoints=17.17.17.1:1", rig.VIP4, strings.ReplaceAll(nasty, " ", "_"))
	s.view("#/services", nasty)
	if s.has("main img") {
		s.t.Error("HTML in a service's name became an element")
	}
	var said string
	s.ok(s.Eval("try { document.body.innerHTML = '<b>x</b>'; 'taken' } catch (e) { e.name }", &said))
	if said != "TypeError" || len(s.Errors()) == 0 {
		s.t.Errorf("setting innerHTML gives %s, want a TypeError and an error in the console", said)
	}
}

// oddAddresses checks that addresses without a link show something sensible, and that keyboard
// users reach the content at once.
func (s *scene) oddAddresses() {
	s.t.Helper()
	for hash, words := range map[string]string{
		"#/constructor": "Recent events", "#/service/%": "is not the key of a service",
		"#/service/1.2.3.4:5%2Ftcp": "does not exist", "#": "Recent events",
	} {
		s.view(hash, words)
	}
	s.view("#/drops", "Packets dropped")
	s.ok(s.Eval("document.querySelector('.skip').focus()", nil))
	s.ok(s.Press("Enter"))
	s.ok(s.Until("document.activeElement === document.querySelector('main') && document.querySelector('h1').textContent === 'Drops'"))
	for _, e := range s.Errors() {
		// Chromium logs later that these two services do not exist
		if !strings.Contains(e, "=%25") && !strings.Contains(e, "=1.2.3.4%3A5%2Ftcp") {
			s.t.Errorf("after odd addresses the console has: %.500s", e)
		}
	}
}

// drainByKeyboard ends a drain and starts one with the keyboard alone.
func (s *scene) drainByKeyboard() {
	s.t.Helper()
	s.view("#/drains", "32.32.32.1:5001")
	s.ok(s.Eval("document.querySelector('.card button').focus()", nil))
	s.ok(s.Press("Enter"))
	s.shows("It receives new connections again")
	s.ok(s.Press("Tab", "Enter"))
	s.shows("No endpoint is drained")
	s.view("#/service/20.20.20.1:443%2Ftcp", "31.31.31.1:5001")
	s.ok(s.Until("document.querySelector('.rows button')"))
	s.ok(s.Eval("document.querySelector('.rows button').focus()", nil))
	s.ok(s.Press("Enter"))
	s.shows("Deadline in seconds")
	s.checkLooks("dialog")
	s.ok(s.Type("9"))
	s.ok(s.Press("Enter"))
	s.shows("End drain")
	if out := s.asRoot("get drain"); !strings.Contains(out, "31.31.31.1:5001") {
		s.t.Errorf("31.31.31.1:5001 is not drained:\n%s", out)
	}
	s.asRoot("undrain endpoint 31.31.31.1:5001")
	s.wantNoErrors("drains")
}

// sortedByAge checks that an address can contain a sort order, and that clicking a column's head
// changes it.
func (s *scene) sortedByAge() {
	s.t.Helper()
	s.view("#/connections?sort=-age", "100.100.100.1")
	const sorted = `[...document.querySelectorAll("[aria-sort]")].filter((h) => h.getAttribute("aria-sort") !== "none").map((h) => h.textContent + ` +
		`" " + h.getAttribute("aria-sort")).join()`
	s.ok(s.Until(sorted + ` === "Age descending"`))
	s.ok(s.Eval(`[...document.querySelectorAll(".head button")].find((b) => b.textContent === "Client").click()`, nil))
	s.ok(s.Until(sorted + ` === "Client ascending"`))
	s.wantNoErrors("sorted")
}

// rollBack rolls back to a revision after the page has shown the changes.
func (s *scene) rollBack() {
	s.t.Helper()
	s.asRoot("create lb %s --tcp=9100:5001 --name=mistake --endpoints=31.31.31.1:1", rig.VIP4)
	s.view("#/revisions", "Roll back")
	s.ok(s.Until("document.querySelectorAll('.rows .row')[1]?.querySelector('button')"))
	s.ok(s.Eval("document.querySelectorAll('.rows .row')[1].querySelector('button').focus()", nil))
	s.ok(s.Press("Enter"))
	s.shows("20.20.20.1:9100/tcp")
	s.checkLooks("rollback")
	s.ok(s.Until("!document.querySelector('dialog .danger').disabled"))
	s.ok(s.Eval("document.querySelector('dialog .danger').focus()", nil))
	s.ok(s.Press("Enter"))
	s.ok(s.Until("!document.querySelector('dialog')"))
	s.shows("ollback to revision")
	if out := s.asRoot("get lb"); strings.Contains(out, ":9100") {
		s.t.Errorf("the service is still there after the rollback:\n%s", out)
	}
	s.wantNoErrors("rollback")
}

// axes checks that the labels of an axis differ, and match their lines, for any largest value.
func (s *scene) axes() {
	s.t.Helper()
	const script = `(async () => {
		const at = document.querySelector("script[type=module]").src;
		const { axisEnd, ticks } = await import(at.replace("main.js", "plot.js"));
		const { below, bits, number, rate } = await import(at.replace("main.js", "dom.js"));
		const whole = Object.assign((n) => number(Math.round(n)), { whole: true });
		const wrong = [];
		for (const [name, format] of Object.entries({ below, bits, rate, whole })) {
			for (let most = 0; most < 1e13; most = most < 20 ? most + 0.5 : most * 1.7) {
				const axis = ticks(axisEnd([[[0, most]]]), format);
				const texts = axis.map((t) => t.text);
				const halves = name === "whole" && axis.some((t) => !Number.isInteger(t.value));
				if (axis.length < 2 || new Set(texts).size < texts.length || halves || axis.at(-1).value < most) wrong.push(name + " up to " + most + ": " + texts.join(", "));
			}
		}
		return wrong;
	})()`
	var wrong []string
	s.ok(s.Eval(script, &wrong))
	for _, w := range wrong {
		s.t.Error("wrong labels of an axis: ", w)
	}
}

// files checks that a list can be saved as a file: a header line, a line for each row with numbers
// in a form for programs, and no text that a spreadsheet would execute.
func (s *scene) files() {
	s.t.Helper()
	s.asRoot("create lb %s --tcp=9101:5001 --name==cmd,\"x\" --endpoints=31.31.31.1:1", rig.VIP4)
	s.view("#/services", "20.20.20.1:9101/tcp")
	const save = `(async () => {
		const made = [];
		const create = URL.createObjectURL, click = HTMLAnchorElement.prototype.click;
		URL.createObjectURL = (blob) => (made.push(blob), create.call(URL, blob));
		let name = "";
		HTMLAnchorElement.prototype.click = function () { name = this.download; };
		try {
			document.querySelector(".csv").click();
			while (!made.length) await new Promise((done) => setTimeout(done, 20));
			return name + "\n" + await made[0].text();
		} finally {
			URL.createObjectURL = create;
			HTMLAnchorElement.prototype.click = click;
		}
	})()`
	var text string
	s.ok(s.Eval(save, &text))
	lines := strings.Split(strings.TrimSuffix(text, "\r\n"), "\n")
	if lines[0] != "services.csv" || !strings.HasPrefix(lines[1], "Service,Name,State,Endpoints,Open,New,Traffic,Latency,Refused") {
		s.t.Errorf("the saved file begins with %q, want a header line of services.csv", lines[:2])
	}
	for _, want := range []string{"20.20.20.1:8443/tcp,admin,down,0 of 1,0,0,0,", `20.20.20.1:9101/tcp,"'=cmd,""x""",`} {
		if !strings.Contains(text, want) {
			s.t.Errorf("the saved file lacks %q:\n%s", want, text)
		}
	}
	s.asRoot("delete lb %s --tcp=9101", rig.VIP4)
	s.wantNoErrors("files")
}

// liveness checks that changes show without a reload, and that the page recovers with the daemon.
func (s *scene) liveness() {
	s.t.Helper()
	s.view("#/events", "live")
	s.asRoot("create lb %s --tcp=9000:5001 --name=fresh --endpoints=31.31.31.1:1", rig.VIP4)
	start := time.Now()
	s.shows("service 20.20.20.1:9000/tcp applied")
	if took := time.Since(start); took > 2*time.Second {
		s.t.Errorf("an event shows after %v", took)
	}
	s.wantNoErrors("live")
	s.Kill()
	s.shows("reconnecting")
	s.Restart()
	s.shows("live")
	s.view("#/services", "fresh")
	labtest.Eventually(s.t, rig.Patience, func(context.Context) error {
		s.Errors() // of requests without an answer
		if s.has("#trouble:not([hidden])") {
			return errors.New("the page still shows that the daemon is away")
		}
		return nil
	})
}
