package browser

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed axe/package.json
var wantedAxe []byte

// axe returns axe-core, the accessibility checker that tools/axe has fetched.
func axe() (string, error) {
	var wanted struct{ Dependencies map[string]string }
	if err := json.Unmarshal(wantedAxe, &wanted); err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	script, err := os.ReadFile(filepath.Join(cache, "loxilb", "axe-core-"+wanted.Dependencies["axe-core"], "axe.min.js"))
	if err != nil {
		return "", fmt.Errorf("%w: tools/setup browser fetches it", err)
	}
	return string(script), nil
}

// Barriers returns the accessibility problems that axe-core finds in the page, by the rules of WCAG
// 2.2 A and AA, and best practices.
func (t *Tab) Barriers() ([]string, error) {
	script, err := axe()
	if err != nil {
		return nil, err
	}
	var there bool
	if err := t.Eval("Boolean(window.axe)", &there); err != nil {
		return nil, err
	}
	if !there {
		if err := t.Eval(script+";void 0", nil); err != nil {
			return nil, err
		}
	}
	var found []struct {
		ID, Help string
		Nodes    []struct {
			HTML           string `json:"html"`
			FailureSummary string `json:"failureSummary"`
		}
	}
	const run = `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations)`
	if err := t.Eval(run, &found); err != nil {
		return nil, err
	}
	var out []string
	for _, f := range found {
		for _, n := range f.Nodes {
			out = append(out, fmt.Sprintf("%s (%s): %.200s: %s", f.ID, f.Help, n.HTML, strings.ReplaceAll(n.FailureSummary, "\n", " ")))
		}
	}
	return out, nil
}
