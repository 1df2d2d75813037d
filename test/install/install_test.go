package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// packages returns the directory of old.deb, new.deb and new.rpm, which make test-package builds.
func packages() string { return os.Getenv("LOXILB_PACKAGES") }

const (
	vip    = "20.20.20.1"
	unit   = "../../deploy/package/loxilb.service"
	atMost = 3.0 // highest exposure of the unit by systemd-analyze security
)

func needPackages(t *testing.T) {
	t.Helper()
	if packages() == "" {
		t.Skip("make test-package makes the packages, and runs it")
	}
	t.Parallel()
}

// TestDebian installs the package on Debian 12 and 13, upgrades and downgrades it under load,
// removes and purges it.
//
// P70 An upgrade or downgrade of the package loses no connection, and a purge removes all files,
// programs and VIPs
func TestDebian(t *testing.T) {
	needPackages(t)
	for _, suite := range []string{"bookworm", "trixie"} {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			r := &rig.Rig{T: t, Standard: labtest.Standard(t, netnstest.Options{})}
			rig.ServeEcho(r)
			m := boot(t, filepath.Join(os.Getenv("LOXILB_DEBIANS"), suite), r.LB)
			m.installs()
			m.keepsConnections(r)
			m.removes(r)
		})
	}
}

// installs checks that the service runs after the installation, and is ready when systemd reports
// it.
func (m *machine) installs() {
	m.t.Helper()
	before := m.loxilbFiles()
	m.run("dpkg", "--install", "/"+packages()+"/old.deb")
	if s := m.property("ActiveState"); s != "active" || m.property("UnitFileState") != "enabled" {
		m.t.Errorf("after the installation the service is %s", s)
	}
	if out := m.run("loxicmd", "get", "status", "--failed", "-o", "json"); !strings.Contains(out, "[]") {
		m.t.Errorf("objects that failed: %s", out)
	}
	log := m.run("journalctl", "--no-pager", "--output=cat", "--unit=loxilb")
	if ready, started := strings.Index(log, "ready version="), strings.Index(log, "Started loxilb"); ready < 0 || started < ready {
		m.t.Errorf("the unit counts as started before it was ready: %s", log)
	}
	if group := m.run("stat", "--format=%G %a", m.socket()); strings.TrimSpace(group) != "loxilb 660" {
		m.t.Errorf("the API's socket has group and mode %s", group)
	}
	for _, page := range []string{"man8/loxilb.8.gz", "man1/loxicmd.1.gz", "man8/loxilb-agent.8.gz"} {
		if !m.has("/usr/share/man/" + page) {
			m.t.Errorf("there is no page %s", page)
		}
	}
	if before != "" {
		m.t.Errorf("before the installation, the machine has %s", before)
	}
}

func (m *machine) socket() string {
	return strings.TrimSpace(m.run("sh", "-c", "ls /run/loxilb/*.sock"))
}

// keepsConnections checks that clients' connections continue while the package is upgraded and
// downgraded, and while the daemon hangs.
func (m *machine) keepsConnections(r *rig.Rig) {
	m.t.Helper()
	m.loxicmd("create lb " + vip + " --tcp=2020:7 --endpoints=31.31.31.1:1,32.32.32.1:1,17.17.17.1:1")
	crowd := rig.NewClients(r)
	crowd.Hold(vip+":2020", 10)
	crowd.OpenRepeatedly(vip + ":2020")
	crowd.AwaitAnswers()
	for _, version := range []string{"new", "old", "new"} {
		pid := m.property("MainPID")
		out := m.run("dpkg", "--install", "/"+packages()+"/"+version+".deb")
		if now := m.property("MainPID"); now == pid || m.property("ActiveState") != "active" {
			m.t.Errorf("with the %s package installed, process %s runs, it was %s: %s: %s", version, now, pid, m.property("ActiveState"), out)
		}
		crowd.AwaitAnswers()
	}
	m.getsStuck()
	crowd.AwaitAnswers()
	if err := crowd.Finish(); err != nil {
		m.t.Error(err)
	}
	if out := m.loxicmd("get lb"); !strings.Contains(out, vip) {
		m.t.Errorf("the service no longer exists: %s", out)
	}
}

// getsStuck stops the daemon's process by SIGSTOP, and checks that systemd detects this and
// restarts the daemon.
func (m *machine) getsStuck() {
	m.t.Helper()
	m.run("sh", "-c",
		"mkdir -p /run/systemd/system/loxilb.service.d && printf '[Service]\\nWatchdogSec=1s\\n' >/run/systemd/system/loxilb.service.d/soon.conf && "+
			"systemctl daemon-reload && systemctl restart loxilb")
	pid := m.property("MainPID")
	await.Steady(m.t, 2*time.Second, func() error { // longer than the watchdog's timeout
		if now := m.property("MainPID"); now != pid {
			return fmt.Errorf("the watchdog has ended a working daemon: process %s, want %s", now, pid)
		}
		return nil
	})
	m.run("sh", "-c", "kill -STOP "+pid)
	labtest.Eventually(m.t, bootPatience, func(context.Context) error {
		if now := m.property("MainPID"); now == pid || now == "0" || m.property("ActiveState") != "active" {
			return fmt.Errorf("process %s is %s", now, m.property("ActiveState"))
		}
		return nil
	})
	m.run("rm", "-r", "/run/systemd/system/loxilb.service.d")
	m.run("systemctl", "daemon-reload")
}

// removes checks that a removal detaches all programs, that services exist again after the next
// installation, and that a purge removes everything.
func (m *machine) removes(r *rig.Rig) {
	m.t.Helper()
	m.run("dpkg", "--remove", "loxilb")
	if out, err := r.LB.Run("bpftool", "net", "show"); err == nil && strings.Contains(out, "loxilb") {
		m.t.Errorf("programs are still attached: %s", out)
	}
	if out, err := r.LB.Run("ip", "address", "show", "dev", "lo"); err != nil || strings.Contains(out, vip) {
		m.t.Errorf("the VIP still exists: %s: %v", out, err)
	}
	if out, _ := m.try("find", "/usr", "-xdev", "-iname", "*loxi*"); out != "" {
		m.t.Errorf("the removal has left %s", out)
	}
	m.run("dpkg", "--install", "/"+packages()+"/new.deb")
	if out := m.loxicmd("get lb"); !strings.Contains(out, vip) {
		m.t.Errorf("after the next installation, the service does not exist: %s", out)
	}
	m.run("dpkg", "--purge", "loxilb")
	if out := m.loxilbFiles(); out != "" {
		m.t.Errorf("the purge has left %s", out)
	}
	if _, err := m.try("getent", "group", "loxilb"); err == nil {
		m.t.Error("the purge has left the group")
	}
}

// loxilbFiles lists the machine's files that are named after loxilb, apart from the checkout, which
// has the packages and whose folder usually has that name.
func (m *machine) loxilbFiles() string {
	m.t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		m.t.Fatal(err)
	}
	find := []string{"find", "/", "-xdev", "-iname", "*loxi*", "-not", "-path", "/proc/*", "-not", "-path", dir + "/*"}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		find = append(find, "-not", "-path", dir)
	}
	return m.run(find...)
}

// TestUnit checks the unit's exposure by systemd-analyze.
func TestUnit(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", unit).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	level := regexp.MustCompile(`Overall exposure level for loxilb.service: ([0-9.]+)`).FindSubmatch(out)
	if level == nil {
		t.Fatalf("no level in %s", out)
	}
	if exposure, err := strconv.ParseFloat(string(level[1]), 64); err != nil || exposure > atMost {
		t.Errorf("exposure is %s, want at most %v: %s", level[1], atMost, out)
	}
}

// TestPackageLint checks that the distributions' package checkers find no error.
func TestPackageLint(t *testing.T) {
	needPackages(t)
	for _, command := range [][]string{
		{"lintian", "--allow-root", "--fail-on=error", filepath.Join(packages(), "new.deb")},
		{"rpmlint", "--config=../../deploy/package/rpmlint.toml", filepath.Join(packages(), "new.rpm")},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", command[0], err, out)
		}
	}
}
