package httpapi_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/contract"
	"loxilb/test/apitest"
)

// TestContract checks that the router and the contract's table agree: each operation exists, or is
// answered by 501 with the table's sentence. The table has each operation of api/openapi.yaml, from
// which the router is generated.
func TestContract(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	variable := regexp.MustCompile(`\{[^}]*\}`)
	inTable := map[string]contract.State{}
	for _, o := range contract.AllOperations() {
		inTable[o.Method+" "+variable.ReplaceAllString(o.Path, "{}")] = o.State
		path := httpapi.BaseURL + variable.ReplaceAllString(o.Path, "x")
		if o.State == contract.Unsupported {
			w := b.Call(o.Method, path, "{}", "Content-Type", "application/json")
			if e := apitest.ProblemOf(t, w); w.Code != 501 || !strings.Contains(e.Message, o.Note) {
				t.Errorf("%s %s: the table says it is missing, but the answer is %d %s", o.Method, o.Path, w.Code, w.Body)
			}
		} else if allow := b.Call("TRACE", path, "").Header().Get("Allow"); !slices.Contains(strings.Split(allow, ", "), o.Method) {
			t.Errorf("%s %s: the table says it is %s, but no handler answers it", o.Method, o.Path, o.State)
		}
	}
	text, err := os.ReadFile("../../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var api struct{ Paths map[string]map[string]any }
	if err := yaml.Unmarshal(text, &api); err != nil {
		t.Fatal(err)
	}
	built := map[string]bool{}
	for path, methods := range api.Paths {
		for method := range methods {
			key := strings.ToUpper(method) + " " + variable.ReplaceAllString(path, "{}")
			built[key] = true
			if _, ok := inTable[key]; !ok {
				t.Errorf("%s %s is not in internal/contract: add a row, with the state Ours if the contract has no such operation", method, path)
			}
		}
	}
	for key, state := range inTable {
		if built[key] != (state != contract.Unsupported) {
			t.Errorf("%s: the table says it is %s, and api/openapi.yaml has it: %v", key, state, built[key])
		}
	}
}

// TestContractValues checks the table's answers to unsupported values.
func TestContractValues(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for _, v := range contract.AllValues() {
		w := b.Post(strings.Replace(apitest.Demo, `"protocol":"tcp"`, `"protocol":"tcp",`+v.Property, 1))
		switch notThere := v.State == contract.Unsupported; {
		case notThere != (w.Code == 501):
			t.Errorf("%s: the table says it is %s, the answer is %d %s", v.Property, v.State, w.Code, w.Body)
		case notThere && !strings.Contains(apitest.ProblemOf(t, w).Message, "is not part of this build: "+v.Note+" (allowed: "):
			t.Errorf("%s: %s\nwant %s", v.Property, w.Body, v.Note)
		}
	}
}

// TestUnknownPaths checks that an unknown path gives 404, and a path of the contract with another
// method 405, whether it is implemented or not.
func TestUnknownPaths(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for request, want := range map[string]int{
		"GET /nowhere":                 404,
		"GET /config/bgp":              404,
		"PATCH /config/bgp/neigh":      405,
		"GET /config/bgp/neigh":        405,
		"POST /config/k8smeta":         501,
		"GET /config/bfd":              405,
		"PUT /config/loadbalancer/all": 405,
		"POST /auth/token/upgrade":     501,
	} {
		method, path, _ := strings.Cut(request, " ")
		w := b.Call(method, httpapi.BaseURL+path, "")
		if apitest.ProblemOf(t, w); w.Code != want {
			t.Errorf("%s: %d, want %d", request, w.Code, want)
		}
		if (w.Header().Get("Allow") != "") != (want == 405) {
			t.Errorf("%s: Allow is %q", request, w.Header().Get("Allow"))
		}
	}
}

// TestCleanPaths checks that repeated slashes are ignored, except within variables.
func TestCleanPaths(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for _, request := range []string{
		"GET //version//", "GET /config//loadbalancer/all/", "GET /config/./../version", "DELETE /config/loadbalancer/name/http%3A%2F%2Fa.example/",
	} {
		method, path, _ := strings.Cut(request, " ")
		if w := b.Call(method, httpapi.BaseURL+path, ""); w.Code != 200 {
			t.Errorf("%s: got %d %s %s, want code 200", request, w.Code, w.Header().Get("Location"), w.Body)
		}
	}
	if w := b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer/name/http%3A%2F%2Fa.example/", ""); !strings.Contains(w.Header().Get("Warning"), "http://a.example") {
		t.Errorf("a variable differs from what was sent: %q", w.Header())
	}
}
