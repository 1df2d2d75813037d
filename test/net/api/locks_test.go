package api_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// lockAll locks each file and folder that the user can open, and holds the locks.
const lockAll = `for path in $(find "$@" 2>/dev/null); do if { exec {fd}<"$path"; } 2>/dev/null && flock -n "$fd"; then echo "locked $path"; fi; done; echo done; exec sleep 600`

// TestLocksOfOthers checks that another user cannot open any file of the state or the pins, and
// cannot delay a start by locking files.
func TestLocksOfOthers(t *testing.T) {
	t.Parallel()
	lab := labtest.New(t)
	h, d := newDaemon(t, lab, "lb", "--socket=auto")
	state, pins := filepath.Join(d.Dir(), "state"), netnstest.PinPath(d.Dir())
	d.Stop()
	holder, err := h.Start(netnstest.Command{Args: append(strings.Fields("setpriv --reuid=65534 --regid=65534 --clear-groups"),
		"bash", "-c", lockAll, "bash", "/run/loxilb", state, pins)})
	if err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if !strings.HasSuffix(holder.Output(), "done\n") {
			return fmt.Errorf("the script has not ended: %s", holder.Output())
		}
		return nil
	})
	locked := holder.Output()
	if !strings.Contains(locked, "locked /run/loxilb\n") {
		t.Errorf("the script has locked no file:\n%s", locked)
	}
	for _, path := range []string{state, pins, "/run/loxilb/lock"} {
		if strings.Contains(locked, "locked "+path) {
			t.Errorf("another user has locked\n%s", locked)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := d.Start(ctx); err != nil {
		t.Fatal(err)
	}
	d.Stop()
	holder.Kill()
}
