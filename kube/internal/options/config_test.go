package options

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestConfig checks that flags of a file have the same meaning as on the command line, which
// overrides them.
func TestConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := `setBGP: 4200000001
numZoneInstances: 4
setUniqueIP: true
zone: west
loxiURL: ["http://192.0.2.11:11111", "http://192.0.2.12:11111"]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	o := Register(fs)
	if err := fs.Parse([]string{"--config=" + file, "--zone=east"}); err != nil {
		t.Fatal(err)
	}
	if err := o.Load(fs); err != nil {
		t.Fatal(err)
	}
	p, err := o.Parse()
	if err != nil {
		t.Fatal(err)
	}
	if p.BGP.AS != 4200000001 || p.Roles.Instances != 4 || !o.UniqueIP || o.Zone != "east" ||
		!slices.Equal(p.URLs, []string{"http://192.0.2.11:11111", "http://192.0.2.12:11111"}) {
		t.Errorf("got %+v with zone %q", p, o.Zone)
	}
}
