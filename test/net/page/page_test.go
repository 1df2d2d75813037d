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

// TestPage uses the page as users do. Without a token, the page shows no data. Viewers cannot
// change anything, HTML in names is shown as text, and the page shows changes without a reload. In
// each of four looks, no view has an accessibility problem that axe-core finds, or an error in its
// console.
//
// P60 The page works under a Content-Security-Policy that forbids inline code, foreign hosts and
// HTML made of text, and without a token it shows no data of the load balancer
func TestPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.must(f.Go(base))
	f.awaitText("Sign in")
	f.checkLooks("signin")
	f.wrongPassword()

	f.signIn("view")
	f.view("#/service/20.20.20.1:80%2Ftcp", "31.31.31.1:5001", "Configuration")
	if f.hasElement("button.danger") || f.hasElement(".rows button") {
		t.Error("a viewer has buttons for changes")
	}
	f.view("#/revisions", "By")
	if f.hasElement(".rows button") {
		t.Error("a viewer has a button to roll back")
	}
	f.must(f.Eval("document.querySelector('#out').click()", nil))
	f.signIn("operate")
	f.views()
	f.namesAreText()
	f.unknownAddresses()
	f.sortedByAge()
	f.drainByKeyboard()
	f.rollBack()
	f.axes()
	f.savedFile()
	f.liveChanges()
	f.scale()
}

// wrongPassword checks that the page shows an error message after a wrong password.
func (f *fixture) wrongPassword() {
	f.t.Helper()
	f.must(f.Eval("document.querySelector('#name').focus()", nil))
	f.must(f.Type("view"))
	f.must(f.Press("Tab"))
	f.must(f.Type("wrong"))
	f.must(f.Press("Enter"))
	f.awaitText("password")
	if len(f.Errors()) == 0 { // Chromium itself logs the refused request
		f.t.Error("the console has no error about the wrong password, so the test would miss errors")
	}
	f.must(f.Eval("document.querySelector('#name').value = document.querySelector('#password').value = ''", nil))
}

// views checks each view in all looks.
func (f *fixture) views() {
	f.t.Helper()
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
		f.view(v[0], v[2:]...)
		f.checkLooks(v[1])
	}
}

// namesAreText checks that a name with HTML is shown as text, and that the browser refuses to
// convert text to HTML.
func (f *fixture) namesAreText() {
	f.t.Helper()
	f.asRoot("create lb %s --tcp=8444:5001 --name=%s --endpoints=17.17.17.1:1", rig.VIP4, strings.ReplaceAll(htmlName, " ", "_"))
	f.view("#/services", htmlName)
	if f.hasElement("main img") {
		f.t.Error("HTML in a service's name became an element")
	}
	var said string
	f.must(f.Eval("try { document.body.innerHTML = '<b>x</b>'; 'taken' } catch (e) { e.name }", &said))
	if said != "TypeError" || len(f.Errors()) == 0 {
		f.t.Errorf("setting innerHTML: got %s, want a TypeError and an error in the console", said)
	}
}

// unknownAddresses checks that unknown addresses show a message, and that keyboard users can skip
// to the content.
func (f *fixture) unknownAddresses() {
	f.t.Helper()
	for hash, words := range map[string]string{
		"#/constructor": "Recent events", "#/service/%": "is not the key of a service",
		"#/service/1.2.3.4:5%2Ftcp": "does not exist", "#": "Recent events",
	} {
		f.view(hash, words)
	}
	f.view("#/drops", "Packets dropped")
	f.must(f.Eval("document.querySelector('.skip').focus()", nil))
	f.must(f.Press("Enter"))
	f.must(f.Until("document.activeElement === document.querySelector('main') && document.querySelector('h1').textContent === 'Drops'"))
	for _, e := range f.Errors() {
		// Chromium logs with a delay that these two services do not exist.
		if !strings.Contains(e, "=%25") && !strings.Contains(e, "=1.2.3.4%3A5%2Ftcp") {
			f.t.Errorf("after unknown addresses the console has: %.500s", e)
		}
	}
}

// drainByKeyboard ends a drain and starts one, only with the keyboard.
func (f *fixture) drainByKeyboard() {
	f.t.Helper()
	f.view("#/drains", "32.32.32.1:5001")
	f.must(f.Eval("document.querySelector('.card button').focus()", nil))
	f.must(f.Press("Enter"))
	f.awaitText("It receives new connections again")
	f.must(f.Press("Tab", "Enter"))
	f.awaitText("No endpoint is drained")
	f.view("#/service/20.20.20.1:443%2Ftcp", "31.31.31.1:5001")
	f.must(f.Until("document.querySelector('.rows button')"))
	f.must(f.Eval("document.querySelector('.rows button').focus()", nil))
	f.must(f.Press("Enter"))
	f.awaitText("Deadline in seconds")
	f.checkLooks("dialog")
	f.must(f.Type("9"))
	f.must(f.Press("Enter"))
	f.awaitText("End drain")
	if out := f.asRoot("get drain"); !strings.Contains(out, "31.31.31.1:5001") {
		f.t.Errorf("31.31.31.1:5001 is not drained:\n%s", out)
	}
	f.asRoot("undrain endpoint 31.31.31.1:5001")
	f.wantNoErrors("drains")
}

// sortedByAge checks that an address can contain a sort order, and that a click on a column's
// header changes it.
func (f *fixture) sortedByAge() {
	f.t.Helper()
	f.view("#/connections?sort=-age", "100.100.100.1")
	const sorted = `[...document.querySelectorAll("[aria-sort]")].filter((h) => h.getAttribute("aria-sort") !== "none").map((h) => h.textContent + ` +
		`" " + h.getAttribute("aria-sort")).join()`
	f.must(f.Until(sorted + ` === "Age descending"`))
	f.must(f.Eval(`[...document.querySelectorAll(".head button")].find((b) => b.textContent === "Client").click()`, nil))
	f.must(f.Until(sorted + ` === "Client ascending"`))
	f.wantNoErrors("sorted")
}

// rollBack rolls back to a revision after the page has shown the changes that this makes.
func (f *fixture) rollBack() {
	f.t.Helper()
	f.asRoot("create lb %s --tcp=9100:5001 --name=mistake --endpoints=31.31.31.1:1", rig.VIP4)
	f.view("#/revisions", "Roll back")
	f.must(f.Until("document.querySelectorAll('.rows .row')[1]?.querySelector('button')"))
	f.must(f.Eval("document.querySelectorAll('.rows .row')[1].querySelector('button').focus()", nil))
	f.must(f.Press("Enter"))
	f.awaitText("20.20.20.1:9100/tcp")
	f.checkLooks("rollback")
	f.must(f.Until("!document.querySelector('dialog .danger').disabled"))
	f.must(f.Eval("document.querySelector('dialog .danger').focus()", nil))
	f.must(f.Press("Enter"))
	f.must(f.Until("!document.querySelector('dialog')"))
	f.awaitText("ollback to revision")
	if out := f.asRoot("get lb"); strings.Contains(out, ":9100") {
		f.t.Errorf("the service exists after the rollback:\n%s", out)
	}
	f.wantNoErrors("rollback")
}

// axes checks, for different largest values, that the labels of an axis differ and match their
// lines.
func (f *fixture) axes() {
	f.t.Helper()
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
	f.must(f.Eval(script, &wrong))
	for _, w := range wrong {
		f.t.Error("wrong labels of an axis: ", w)
	}
}

// savedFile checks that a list can be saved as a file. It has a header line, a line for each row
// with numbers in a format for programs, and no text that a spreadsheet would execute.
func (f *fixture) savedFile() {
	f.t.Helper()
	f.asRoot("create lb %s --tcp=9101:5001 --name==cmd,\"x\" --endpoints=31.31.31.1:1", rig.VIP4)
	f.view("#/services", "20.20.20.1:9101/tcp")
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
	f.must(f.Eval(save, &text))
	lines := strings.Split(strings.TrimSuffix(text, "\r\n"), "\n")
	if lines[0] != "services.csv" || !strings.HasPrefix(lines[1], "Service,Name,State,Endpoints,Open,New,Traffic,Latency,Refused") {
		f.t.Errorf("the saved file begins with %q, want a header line of services.csv", lines[:2])
	}
	for _, want := range []string{"20.20.20.1:8443/tcp,admin,down,0 of 1,0,0,0,", `20.20.20.1:9101/tcp,"'=cmd,""x""",`} {
		if !strings.Contains(text, want) {
			f.t.Errorf("the saved file lacks %q:\n%s", want, text)
		}
	}
	f.asRoot("delete lb %s --tcp=9101", rig.VIP4)
	f.wantNoErrors("files")
}

// liveChanges checks that the page shows changes without a reload, and works again after a restart
// of the daemon.
func (f *fixture) liveChanges() {
	f.t.Helper()
	f.view("#/events", "live")
	f.asRoot("create lb %s --tcp=9000:5001 --name=fresh --endpoints=31.31.31.1:1", rig.VIP4)
	start := time.Now()
	f.awaitText("service 20.20.20.1:9000/tcp applied")
	if took := time.Since(start); took > 2*time.Second {
		f.t.Errorf("the page shows an event only after %v", took)
	}
	f.wantNoErrors("live")
	f.Kill()
	f.awaitText("reconnecting")
	f.Restart()
	f.awaitText("live")
	f.view("#/services", "fresh")
	labtest.Eventually(f.t, rig.Patience, func(context.Context) error {
		f.Errors() // ignore errors of requests without an answer
		if f.hasElement("#trouble:not([hidden])") {
			return errors.New("the page still shows that the daemon does not answer")
		}
		return nil
	})
}
