package compat_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/test/net/rig"
)

// runScript runs a part of a script written for the existing loxilb, with loxicmd and the API where
// the script expects them, and returns its output.
func runScript(r *rig.Rig, part, dir string) string {
	r.T.Helper()
	out, err := r.LB.Run("env", "LOXILB_COMPAT=1", "PATH="+rig.Bin()+":"+os.Getenv("PATH"), "sh", "testdata/contract.sh", part, dir)
	if err != nil {
		r.T.Fatalf("%s: %v\n%s", part, err, out)
	}
	return out
}

// tableHeader returns the columns of the first table whose first column is the given one.
func tableHeader(t *testing.T, out, first string) []string {
	t.Helper()
	for line := range strings.Lines(out) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.EqualFold(cells[0], first) {
			return cells
		}
	}
	t.Errorf("no table begins with %q:\n%s", first, out)
	return nil
}

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// P53 A script written for the existing loxilb runs unchanged: it sets up services of each kind,
// endpoints and firewall rules, shows and saves them, applies what it saved, and deletes all
func TestContractScript(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	r.ServeUDPEcho()
	dir := t.TempDir()
	wantWorking := func() {
		t.Helper()
		r.WantAnswers("20.20.20.1:2020", "ep1", "ep2", "ep3")
		for _, vip := range []string{"20.20.20.2:2020", "20.20.20.3:2020", "20.20.20.4:2020", "20.20.20.8:3007", "20.20.20.9:2020", "[2001:db8:20::1]:2020"} {
			if _, err := r.Ask(vip); err != nil {
				t.Errorf("%s: %v", vip, err)
			}
		}
		if out, err := r.Client.Run("ping", "-c1", "-W2", "20.20.20.7"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	runScript(r, "setup", dir)
	wantWorking()

	shown := runScript(r, "show", dir)
	for first, want := range map[string]string{
		"Ext IP":       "Ext IP,Port,Proto,Name,Mark,Sel,Mode,# of Endpoints,Timeout,Monitor",
		"Host":         "Host,Name,ptype,port,duration,retries,minDelay,avgDelay,maxDelay,State",
		"Source IP":    "Source IP,destination IP,min SPort,max SPort,min DPort,max DPort,protocol,port Name,preference,Option",
		"Instance":     "Instance,HAState",
		"Service Name": "Service Name,destIP,srcIP,dport,sport,proto,ident,state,act,packets,bytes",
	} {
		if got := strings.Join(tableHeader(t, shown, first), ","); !strings.HasPrefix(strings.ToLower(got), strings.ToLower(want)) {
			t.Errorf("columns %s, want %s", got, want)
		}
	}
	for _, want := range []string{"| prio", "priority", "persist", "fullnat", "onearm", "dsr", "3000-3010", "Allow,FwMark(10)", "Drop"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no command prints %q:\n%s", want, shown)
		}
	}

	runScript(r, "save", dir)
	for name, key := range map[string]string{"lbconfig.txt": "lbAttr", "EPconfig.txt": "Attr", "FWconfig.txt": "fwAttr"} {
		text := readFile(t, dir, name)
		var saved map[string][]map[string]any
		if err := json.Unmarshal([]byte(text), &saved); err != nil || len(saved[key]) == 0 {
			t.Errorf("%s: got %v\n%s, want objects in the saved file", name, err, text)
		}
	}
	r.Stop()
	r.Restart()
	wantWorking()

	runScript(r, "delete", dir)
	r.WantNoAnswer("20.20.20.1:2020")
	for _, kind := range []string{"lb", "ep", "firewall"} {
		if out := r.Loxicmd("get %s -o json", kind); strings.Contains(out, "20.20.20.") || strings.Contains(out, "web1") {
			t.Errorf("%s remain:\n%s", kind, out)
		}
	}
	runScript(r, "restore", dir)
	wantWorking()
	again := t.TempDir()
	runScript(r, "save", again)
	for _, name := range []string{"lbconfig.txt", "FWconfig.txt"} {
		if before, after := readFile(t, dir, name), readFile(t, again, name); before != after {
			t.Errorf("%s, applied and saved, is:\n%s\nwant\n%s", name, after, before)
		}
	}
	runScript(r, "restore", dir) // everything exists already: running a script twice must succeed
}
