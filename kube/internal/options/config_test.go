package options

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestConfig checks that flags in a file mean the same as on the command line, which overrides
// them.
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

// TestConfigWithoutValue checks that a key without a value is an error: it was read as "<nil>".
func TestConfigWithoutValue(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"class:\n":                  "class has no value",
		"cidrPools: [a=1.1.1.1, ]":  "",
		"cidrPools: [a=1.1.1.1, ~]": "cidrPools has no value",
		"zone: {name: west}":        "zone has keys of its own",
	} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		o := Register(fs)
		if err := fs.Parse([]string{"--config=" + file}); err != nil {
			t.Fatal(err)
		}
		if err := o.Load(fs); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", text, err, want)
		}
	}
}
