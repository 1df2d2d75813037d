package objects

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"loxilb/internal/kernel/netdev/netlink"
)

func openLedger(t *testing.T, dir string) *Ledger {
	t.Helper()
	ns, err := netlink.OpenNamespace("")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	k, err := Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	l, err := k.OpenLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestLedger checks that an object that was recorded and not removed is found again, even after a
// truncated line; not for another boot or namespace. The file does not grow without bound.
func TestLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLedger(t, dir)
	if err := l.Record("route", map[string]any{"a": map[string]string{"via": "x"}, "b": 2}); err != nil {
		t.Fatal(err)
	}
	if err := l.Forget("route", "b", "never noted"); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		key := fmt.Sprint(i)
		if err := l.Record("fdb", map[string]any{key: i}); err != nil {
			t.Fatal(err)
		}
		if err := l.Forget("fdb", key); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, ledgerFile)
	data, err := os.ReadFile(path)
	if err != nil || len(data) > 100_000 {
		t.Fatalf("the file has %d bytes: %v", len(data), err)
	}
	if err := os.WriteFile(path, append(data, `{"kind":"route","key":"c","obj`...), 0o600); err != nil {
		t.Fatal(err)
	}
	again := openLedger(t, dir)
	if got := again.Get("route", "a"); string(got) != `{"via":"x"}` {
		t.Errorf("the ledger's entry of route a is %q after it was opened again", got)
	}
	if keys := again.Keys("route"); len(keys) != 1 || len(again.Keys("fdb")) != 0 {
		t.Errorf("the recorded keys are %v and %v", keys, again.Keys("fdb"))
	}
	if err := again.Record("route", map[string]any{"d": 1}); err != nil {
		t.Fatal(err)
	}
	if third := openLedger(t, dir); len(third.Keys("route")) != 2 {
		t.Errorf("after a truncated line, the recorded routes are %v", third.Keys("route"))
	}
	if data, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte(`{"life":"another boot"}`+"\n"), data[len(data)/2:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if other := openLedger(t, dir); len(other.Keys("route")) != 0 {
		t.Errorf("routes of another boot count as recorded: %v", other.Keys("route"))
	}
}

// TestLedgerFull checks that a failed record is an error, and does not count as recorded.
func TestLedgerFull(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	l.file.Close()
	l.file = full
	if err := l.Record("route", map[string]any{"a": 1}); err == nil || l.Get("route", "a") != nil {
		t.Errorf("a record on a full disk gives %v", err)
	}
}

// TestLedgerLater checks that a ledger that could not be written when it was opened is written,
// with all records, by its first later record.
func TestLedgerLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := openLedger(t, dir).Record("route", map[string]any{"a": 1}); err != nil {
		t.Fatal(err)
	}
	block := filepath.Join(dir, ledgerFile+".new")
	if err := os.Mkdir(block, 0o700); err != nil {
		t.Fatal(err)
	}
	l := openLedger(t, dir)
	if l.Get("route", "a") == nil {
		t.Error("a recorded object is forgotten")
	}
	if err := l.Record("route", map[string]any{"b": 1}); err == nil || l.Get("route", "b") != nil {
		t.Errorf("a record that cannot be written gives %v", err)
	}
	if err := os.Remove(block); err != nil {
		t.Fatal(err)
	}
	if err := l.Record("route", map[string]any{"b": 1}); err != nil {
		t.Error(err)
	}
	if keys := openLedger(t, dir).Keys("route"); len(keys) != 2 {
		t.Errorf("the recorded keys are %v", keys)
	}
}

// TestLedgerHalfWritten checks that a partial record that cannot be removed from the file does not
// spoil the next one.
func TestLedgerHalfWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLedger(t, dir)
	if err := l.Record("route", map[string]any{"a": 1}); err != nil {
		t.Fatal(err)
	}
	good := l.file
	defer good.Close() //nolint:errcheck // of a test
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := good.WriteString(`{"kind":"route","key":"b","obj`); err != nil { // the part of the next record that reached the disk
		t.Fatal(err)
	}
	l.file = full
	if err := l.Record("route", map[string]any{"b": 2}); err == nil {
		t.Fatal("a record on a full disk succeeds")
	}
	if err := l.Record("route", map[string]any{"c": 3}); err != nil {
		t.Fatal(err)
	}
	if keys := fmt.Sprint(openLedger(t, dir).Keys("route")); keys != "[a c]" {
		t.Errorf("the partial record is read as %s", keys)
	}
}
