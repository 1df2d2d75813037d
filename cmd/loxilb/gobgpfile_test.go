package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/internal/control/desired"
)

// TestGobgpFile checks that the file of gobgpd is used until BGP is configured, and that a refused
// object does not affect the others.
func TestGobgpFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "gobgp_loxilb.yaml")
	const text = `global:
  config:
    as: 64512
    router-id: 10.0.0.1
neighbors:
  - config: {neighbor-address: 10.0.0.2, peer-as: 64513}
  - config: {neighbor-address: 224.0.0.1, peer-as: 64513}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	log := slog.New(slog.NewTextHandler(&lines, nil))
	state, err := desired.Open(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	loadGobgpFile(state, filepath.Join(dir, "none"), "", log)
	loadGobgpFile(state, dir, "node1", log)
	now := state.Snapshot()
	if s, _ := state.Speakers.Get(now, "global"); s.ASN != 64512 || state.BGPNeighbors.Len(now) != 1 || now.Revision() != 1 {
		t.Errorf("%+v, %d neighbors\n%s", s, state.BGPNeighbors.Len(now), lines.String())
	}
	if !strings.Contains(lines.String(), `key=224.0.0.1 error="ipAddress`) {
		t.Errorf("got %v, want `key=224.0.0.1 error=\"ipAddress` in lines", lines.String())
	}
	loadGobgpFile(state, dir, "node1", log)
	if state.Snapshot().Revision() != 1 {
		t.Error("the file was read again")
	}
}
