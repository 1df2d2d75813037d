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

// keeper is a victim whose files are checked after each kill: users, revisions and pending
// confirmations, boot files.
type keeper struct {
	*victim
	dir string // boot files, and files of the commands
}

const bootPort, appliedPort = 901, 902

func (k *keeper) path(name string) string { return filepath.Join(k.dir, name) }

func (k *keeper) file(name, text string) {
	k.T.Helper()
	if err := os.WriteFile(k.path(name), []byte(text), 0o600); err != nil {
		k.T.Fatal(err)
	}
}

// live runs one life of the daemon: it reads a new boot file, creates and deletes a user, and
// confirms a change. It returns how many of the commands were answered.
func (k *keeper) live(kill int) (life steps.Life, done int) {
	k.T.Helper()
	now := time.Now()
	if err := os.Chtimes(k.path("lbconfig.txt"), now, now); err != nil {
		k.T.Fatal(err)
	}
	life = k.watched(kill, func() error {
		ctx, cancel := context.WithTimeout(k.T.Context(), rig.StartPatience)
		defer cancel()
		if err := k.Start(ctx); err != nil {
			return err
		}
		for _, command := range []string{
			"create user ann --role=view --password-file=" + k.path("password"),
			"apply -f " + k.path("all.json") + " --confirm=1h",
			"confirm",
			"rollback",
			"delete user ann",
		} {
			if _, err := k.Command(strings.Fields(command)...); err != nil {
				return err
			}
			done++
		}
		k.Stop()
		return nil
	})
	return life, done
}

// recover starts the daemon again, and checks that its files have what was answered.
func (k *keeper) recover(done int) {
	k.T.Helper()
	k.Restart()
	if out := k.Loxicmd("get status --failed"); strings.Contains(out, "failed") {
		k.T.Errorf("after a start:\n%s", out)
	}
	services, users, revisions := k.Loxicmd("get lb"), k.Loxicmd("get user"), k.Loxicmd("get revisions")
	if !strings.Contains(services, fmt.Sprint(bootPort)) {
		k.T.Errorf("the boot file was not read:\n%s", services)
	}
	// A request without an answer may have been applied or not.
	waits, applied, ann := strings.Contains(revisions, "until "), strings.Contains(services, fmt.Sprint(appliedPort)), strings.Contains(users, "ann")
	for _, tc := range []struct {
		what        string
		is          bool
		from, until int // certain after this many answers, and until the command of this number is sent, which undoes it
	}{{"a change waits", waits, 2, 2}, {"the change is there", applied, 2, 3}, {"the user is there", ann, 1, 4}} {
		if sure := done >= tc.from && done < tc.until; sure && !tc.is || done > tc.until && tc.is || done < tc.from-1 && tc.is {
			k.T.Errorf("%d commands were answered, and %s: %v\n%s%s%s", done, tc.what, tc.is, services, users, revisions)
		}
	}
	if waits {
		k.Loxicmd("confirm")
	}
	if ann {
		k.Loxicmd("delete user ann")
	}
	for _, port := range []int{bootPort, appliedPort} {
		if strings.Contains(services, fmt.Sprint(port)) {
			k.Loxicmd("delete lb 20.20.20.9 --tcp=%d", port)
		}
	}
	k.Stop()
}

// TestKilledFiles kills the daemon before steps in which it writes users, revisions and pending
// confirmations, or reads boot files. The next start has everything that was answered, and has read
// the boot files.
func TestKilledFiles(t *testing.T) {
	t.Parallel()
	k := &keeper{victim: &victim{kills: map[string]int{}}, dir: t.TempDir()}
	service := func(port int) string {
		return fmt.Sprintf(
			`{"lbAttr":[{"serviceArguments":{"externalIP":"20.20.20.9","port":%d,"protocol":"tcp"},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":80,"weight":1}]}]}`,
			port)
	}
	k.victim.Rig = rig.New(t, rig.Options{Args: []string{"--compat", "--config-path=" + k.dir}})
	k.file("lbconfig.txt", service(bootPort))
	k.file("all.json", service(appliedPort))
	k.file("password", "correct horse\n")
	var err error
	if k.watcher, err = steps.Listen(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.watcher.Close() })
	if k.wrap, err = k.watcher.Wrap(); err != nil {
		t.Fatal(err)
	}
	k.Loxicmd("create lb 20.20.20.8 --tcp=80:80 --endpoints=31.31.31.1:1") // there is state already
	k.Stop()
	life, done := k.live(0)
	if k.recover(done); done != 5 || t.Failed() {
		t.Fatalf("%d commands were answered", done)
	}
	for _, at := range killsOf(t, life.Steps, 4) {
		life, done := k.live(at)
		k.recover(done)
		k.blame(at, life)
	}
	t.Logf("of %d steps, killed before %v", life.Steps, k.kills)
}
