package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/steps"
)

// fileRig is a killRig whose files are checked after each kill: users, revisions, pending
// confirmations and boot files.
type fileRig struct {
	*killRig
	dir string // of boot files, and of files that commands read
}

const bootPort, appliedPort = 901, 902

func (f *fileRig) pathOf(name string) string { return filepath.Join(f.dir, name) }

func (f *fileRig) write(name, text string) {
	f.T.Helper()
	if err := os.WriteFile(f.pathOf(name), []byte(text), 0o600); err != nil {
		f.T.Fatal(err)
	}
}

// runOnce starts the daemon, which reads a new boot file, and runs commands that create and delete
// a user, and confirm a change. It returns how many of the commands were answered.
func (f *fileRig) runOnce(kill int) (record steps.Record, done int) {
	f.T.Helper()
	now := time.Now()
	if err := os.Chtimes(f.pathOf("lbconfig.txt"), now, now); err != nil {
		f.T.Fatal(err)
	}
	record = f.runUntilStep(kill, func() error {
		ctx, cancel := context.WithTimeout(f.T.Context(), rig.StartPatience)
		defer cancel()
		if err := f.Start(ctx); err != nil {
			return err
		}
		for _, command := range []string{
			"create user ann --role=view --password-file=" + f.pathOf("password"),
			"apply -f " + f.pathOf("all.json") + " --confirm=1h",
			"confirm",
			"rollback",
			"delete user ann",
		} {
			if _, err := f.Command(strings.Fields(command)...); err != nil {
				return err
			}
			done++
		}
		f.Stop()
		return nil
	})
	return record, done
}

// checkRecovery starts the daemon again, and checks that it has read the boot file, and that its
// files have the effect of the answered commands.
func (f *fileRig) checkRecovery(done int) {
	f.T.Helper()
	f.Restart()
	if out := f.Loxicmd("get status --failed"); strings.Contains(out, "failed") {
		f.T.Errorf("after a start:\n%s", out)
	}
	services, users, revisions := f.Loxicmd("get lb"), f.Loxicmd("get user"), f.Loxicmd("get revisions")
	if !strings.Contains(services, fmt.Sprint(bootPort)) {
		f.T.Errorf("the boot file was not read:\n%s", services)
	}
	// A request without an answer may have been applied or not.
	pending, applied, ann := strings.Contains(revisions, "until "), strings.Contains(services, fmt.Sprint(appliedPort)), strings.Contains(users, "ann")
	for _, tc := range []struct {
		what        string
		got         bool
		from, until int // true after this many answers, until the command with this index is sent
	}{{"a change waits for confirmation", pending, 2, 2}, {"the change is applied", applied, 2, 3}, {"the user exists", ann, 1, 4}} {
		if mustBe := done >= tc.from && done < tc.until; mustBe && !tc.got || done > tc.until && tc.got || done < tc.from-1 && tc.got {
			f.T.Errorf("%d commands were answered, and %s: %v\n%s%s%s", done, tc.what, tc.got, services, users, revisions)
		}
	}
	if pending {
		f.Loxicmd("confirm")
	}
	if ann {
		f.Loxicmd("delete user ann")
	}
	for _, port := range []int{bootPort, appliedPort} {
		if strings.Contains(services, fmt.Sprint(port)) {
			f.Loxicmd("delete lb 20.20.20.9 --tcp=%d", port)
		}
	}
	f.Stop()
}

// TestKilledFiles kills the daemon before steps in which it writes users, revisions and pending
// confirmations, or reads boot files. The next start reads the boot files, and has the effect of
// all answered commands.
func TestKilledFiles(t *testing.T) {
	t.Parallel()
	f := &fileRig{killRig: &killRig{kills: map[string]int{}}, dir: t.TempDir()}
	service := func(port int) string {
		return fmt.Sprintf(
			`{"lbAttr":[{"serviceArguments":{"externalIP":"20.20.20.9","port":%d,"protocol":"tcp"},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":80,"weight":1}]}]}`,
			port)
	}
	f.killRig.Rig = rig.New(t, rig.Options{Args: []string{"--compat", "--config-path=" + f.dir}})
	f.write("lbconfig.txt", service(bootPort))
	f.write("all.json", service(appliedPort))
	f.write("password", "correct horse\n")
	var err error
	if f.watcher, err = steps.Listen(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.watcher.Close() })
	if f.wrap, err = f.watcher.Wrap(); err != nil {
		t.Fatal(err)
	}
	f.Loxicmd("create lb 20.20.20.8 --tcp=80:80 --endpoints=31.31.31.1:1") // so there is a state file
	f.Stop()
	record, done := f.runOnce(0)
	if f.checkRecovery(done); done != 5 || t.Failed() {
		t.Fatalf("%d commands were answered", done)
	}
	for _, at := range killSteps(t, record.Steps, 4) {
		record, done := f.runOnce(at)
		f.checkRecovery(done)
		f.stopIfFailed(at, record)
	}
	t.Logf("of %d steps, killed before %v", record.Steps, f.kills)
}
