package compat_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"loxilb/test/net/rig"
)

// TestImportPage checks each task of docs/import.md: the other program accepts the configuration,
// and importing it creates the same service as the loxicmd command below it.
func TestImportPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(rig.Root, "docs/import.md"))
	if err != nil {
		t.Fatal(err)
	}
	r := rig.Shared(t)
	dir := t.TempDir()
	var formats, files []string
	tasks := 0
	for _, m := range regexp.MustCompile("(?ms)^```(ipvsadm|nft|haproxy|keepalived)\n(.*?)^```|^    (loxicmd create lb [^\n]*)").FindAllStringSubmatch(string(text), -1) {
		if m[3] == "" {
			file := filepath.Join(dir, m[1])
			if err := os.WriteFile(file, []byte(m[2]), 0o644); err != nil {
				t.Fatal(err)
			}
			checkSyntax(t, r, m[1], file)
			formats, files = append(formats, m[1]), append(files, file)
			continue
		}
		if len(files) == 0 {
			t.Fatalf("no block precedes %s", m[3])
		}
		for i, file := range files {
			sameService(t, r, formats[i], file, m[3])
			tasks++
		}
		formats, files = nil, nil
	}
	if tasks < 9 {
		t.Errorf("only %d blocks were found", tasks)
	}
}

// checkSyntax checks a file with the program that reads this format. ipvsadm cannot check files.
func checkSyntax(t *testing.T, r *rig.Rig, format, file string) {
	t.Helper()
	check := map[string][]string{"nft": {"nft", "-c", "-f", file}, "haproxy": {"haproxy", "-c", "-f", file}, "keepalived": {"keepalived", "-t", "-f", file}}[format]
	if check == nil {
		return
	}
	if out, err := r.LB.Run(check...); err != nil {
		t.Errorf("%v: %v: %s", check, err, out)
	}
}

// sameService imports a file on a balancer without services, and checks that the command then
// changes nothing.
func sameService(t *testing.T, r *rig.Rig, format, file, line string) {
	t.Helper()
	yaml, err := r.Command("import", "--strict", format, file)
	if err != nil {
		t.Errorf("import %s: %v", yaml, err)
		return
	}
	if err := os.WriteFile(file+".yaml", []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	r.Loxicmd("apply -f %s", file+".yaml")
	out, err := r.Command(strings.Fields(line)[1:]...)
	if err != nil || !strings.Contains(out, "unchanged") {
		t.Errorf("%s, after the import of\n%s: %v %s", line, yaml, err, out)
	}
	r.Loxicmd("delete lb %s", strings.Fields(line)[3]+" "+regexp.MustCompile(`--(tcp|udp)=\d+`).FindString(line))
}
