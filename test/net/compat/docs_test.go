package compat_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestDocs runs the commands of each document in their order, on a balancer without objects. Lines
// indented by four spaces run on the balancer, blocks fenced as `endpoint` on an endpoint.
func TestDocs(t *testing.T) {
	t.Parallel()
	for _, name := range documents(t) {
		d := readDocument(t, name)
		if len(d.commands) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d.run(t)
		})
	}
}

// document is a document with its commands.
type document struct {
	name     string
	text     string
	commands []command
}

type command struct {
	line     string
	endpoint bool // runs on an endpoint
}

// documents returns the names of the repository's documents for users.
func documents(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(rig.Root, "docs/*.md"))
	if err != nil || len(list) < 20 {
		t.Fatalf("%d documents, %v", len(list), err)
	}
	names := []string{"README.md", "CONTRIBUTING.md"}
	for _, path := range list {
		names = append(names, "docs/"+filepath.Base(path))
	}
	return names
}

// readDocument reads a document and its commands. The test fails if it cannot run a command.
func readDocument(t *testing.T, name string) document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rig.Root, name))
	if err != nil {
		t.Fatal(err)
	}
	d := document{name: name, text: string(text)}
	fence := ""
	for line := range strings.Lines(d.text) {
		line = strings.TrimRight(line, "\n")
		language, fenced := strings.CutPrefix(line, "```")
		indented, is := strings.CutPrefix(line, "    ")
		switch {
		case fenced && fence == "":
			fence = "```" + language
		case fenced:
			fence = ""
		case fence == "```endpoint":
			d.commands = append(d.commands, command{line, true})
		case fence == "" && is && runsOnBalancer(indented):
			d.commands = append(d.commands, command{line: indented})
		case fence == "" && is && regexp.MustCompile(`^(make|[A-Z_]+=\S+ .*make) `).MatchString(indented):
			wantTarget(t, name, indented)
		}
	}
	return d
}

// runsOnBalancer reports whether a line is a command that the test can run in the balancer's
// namespace. Others (make, apt, systemctl, ssh) have other tests.
func runsOnBalancer(line string) bool {
	program, _, _ := strings.Cut(line, " ")
	return slices.Contains([]string{"loxicmd", "curl", "echo", "for", "ip", "nft", "rm", "sysctl", "tcpdump"}, program)
}

// wantTarget fails the test if a `make` command has a target that the Makefile lacks.
func wantTarget(t *testing.T, name, line string) {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(rig.Root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ = strings.Cut(line, "  ")
	_, words, _ := strings.Cut(" "+line, " make ")
	for _, word := range strings.Fields(words) {
		if !strings.Contains(word, "=") && !strings.Contains(string(makefile), "\n"+word+":") {
			t.Errorf("%s: %s: make has no target %s", name, line, word)
		}
	}
}

func (d document) run(t *testing.T) {
	r := rig.Shared(t)
	for _, name := range []string{"eth1", "eth2", "eth3"} { // named in documents
		rig.MustRun(t, r.LB, "ip", "link", "add", name, "type", "veth", "peer", "name", "peer-"+name)
		t.Cleanup(func() { rig.MustRun(t, r.LB, "ip", "link", "delete", name) })
	}
	dir := t.TempDir()
	d.prepare(t, r, dir)
	for _, c := range d.commands {
		c.run(t, r, dir)
	}
	if strings.Contains(r.Log(), "level=ERROR") {
		t.Error("a command made the daemon log an error")
	}
}

// prepare creates the objects that a document assumes to exist.
func (d document) prepare(t *testing.T, r *rig.Rig, dir string) {
	t.Helper()
	switch d.name {
	case "docs/import.md":
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(rig.Root, "internal/cli/importer/testdata"))); err != nil {
			t.Fatal(err)
		}
	case "docs/configuration.md":
		_, example, _ := strings.Cut(d.text, "    apiVersion:")
		example, _, _ = strings.Cut("    apiVersion:"+example, "    ---")
		if err := os.Mkdir(filepath.Join(dir, "site"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "site/web.yaml"), []byte(strings.ReplaceAll("\n"+example, "\n    ", "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	case "docs/firewall.md": // a client whose packets are recorded
		rig.MustRun(t, r.Client, "ip", "address", "add", "203.0.113.7/32", "dev", "lo")
		ping, err := r.Client.Start(netnstest.Command{Args: []string{"ping", "-q", "-i", "0.1", "-c", "200", "-I", "203.0.113.7", "100.100.100.254"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ping.Stop)
	case "docs/first-service.md": // creates namespaces of its own
		t.Cleanup(func() {
			_, _ = r.LB.Run("sh", "-c", fmt.Sprintf("for n in $(ip netns list | grep -o '^%s-[a-z]*[12]'); do ip netns pids $n | xargs -r kill; ip netns delete $n; done", r.LB.Namespace))
		})
	case "docs/drain.md", "docs/explain.md", "docs/looking.md", "docs/troubleshooting.md":
		r.Loxicmd("create lb 20.20.20.1 --tcp=80:5001,2020:5001 --endpoints=31.31.31.1:1")
	}
}

// run runs a command as a reader would, and fails the test if the command fails.
func (c command) run(t *testing.T, r *rig.Rig, dir string) {
	t.Helper()
	host, line := r.LB, strings.NewReplacer( // the test has other paths than an installed package
		"/etc/keepalived/keepalived.conf", filepath.Join(dir, "keepalived.conf"),
		"/var/lib/loxilb/", filepath.Join(r.Dir(), "state")+"/",
		"/tmp/hello", filepath.Join(dir, "hello"),
		" server$n", " "+r.LB.Namespace+"-server$n",
	).Replace(c.line)
	if c.endpoint {
		host = r.Endpoints[0]
	}
	switch {
	case strings.HasPrefix(line, "loxilb agent "): // runs until it is stopped
		line = "timeout --preserve-status 1 " + line
	case strings.HasPrefix(line, "tcpdump -nr "): // the file is written with a delay
		line = "timeout 10 sh -c 'until " + line + "; do sleep 0.1; done'"
	}
	shell := fmt.Sprintf("cd %s && PATH=%s:$PATH; %s", dir, rig.Bin(), line)
	if _, want, prints := strings.Cut(c.line, "# prints: "); prints {
		labtest.Eventually(t, rig.Patience, func(context.Context) error { // servers and programs at new interfaces start with a delay
			if out, err := host.Run("sh", "-c", shell); err != nil || strings.TrimSpace(out) != want {
				return errors.Join(err, fmt.Errorf("%s: printed %q", c.line, out))
			}
			return nil
		})
		return
	}
	if out, err := host.Run("sh", "-c", shell); err != nil && !c.isFinding(err) {
		t.Errorf("%s: got %v: %s, want success, or the exit code for a finding", c.line, err, out)
	}
}

// isFinding reports whether an error is an exit code that reports a finding of the command.
func (c command) isFinding(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	return strings.HasPrefix(c.line, "loxicmd plan ") && exit.ExitCode() == 2 || strings.HasPrefix(c.line, "loxicmd doctor") && exit.ExitCode() == 1
}
