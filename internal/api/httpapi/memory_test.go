package httpapi_test

import (
	"bytes"
	"flag"
	"fmt"
	"mime/multipart"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/test/apitest"
	"loxilb/test/race"
)

// filler is the size of generated text: a head, repeated parts, and a tail.
type filler int

func (size filler) filled(head, part, separator, tail string) string {
	n := (int(size) - len(head) - len(tail) - len(part) - 512) / (len(part) + len(separator))
	return head + strings.Repeat(part+separator, n) + part + tail
}

// worstBodies returns bodies that need much more memory than their size.
func worstBodies(size filler) map[string]func() string {
	const spec = `{"objects":[{"kind":"lb","spec":`
	service := func(rest string) string {
		return `{"kind":"lb","spec":{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp"},` + rest + `}}`
	}
	return map[string]func() string{
		"null endpoints":  func() string { return size.filled(spec+`{"endpoints":[`, "null", ",", "]}}]}") },
		"empty endpoints": func() string { return size.filled(spec+`{"endpoints":[`, "{}", ",", "]}}]}") },
		"endpoints of many services": func() string {
			return size.filled(`{"objects":[`, service(`"endpoints":[`+strings.Repeat("null,", 4000)+`null]`), ",", "]}")
		},
		"null objects":  func() string { return size.filled(`{"objects":[`, "null", ",", "]}") },
		"empty objects": func() string { return size.filled(`{"objects":[`, "{}", ",", "]}") },
		"unknown names": func() string { return size.filled(spec+`{`, `"a":1`, ",", "}}]}") },
		"sources":       func() string { return size.filled(spec+`{"allowedSources":[`, "null", ",", "]}}]}") },
		"metadata": func() string {
			return size.filled(`{"objects":[{"kind":"vlanmember","metadata":{"vid":[`, "[]", ",", `]},"spec":{}}]}`)
		},
		"metadata names": func() string {
			return size.filled(`{"objects":[{"kind":"vlanmember","metadata":{"vid":1`, `,"a":[]`, "", `},"spec":{}}]}`)
		},
		"long value":   func() string { return size.filled(spec+`{"serviceArguments":{"externalIP":"`, "<", "", `"}}}]}`) },
		"long escapes": func() string { return size.filled(spec+`{"serviceArguments":{"externalIP":"`, `\u0001`, "", `"}}}]}`) },
		"long name":    func() string { return size.filled(spec+`{"`, "<", "", `":1}}]}`) },
		"long kind":    func() string { return size.filled(`{"objects":[{"kind":"`, "<", "", `"}]}`) },
		"all wrong": func() string {
			return size.filled(`{"objects":[`, `{"kind":"`+strings.Repeat("<", 490)+`"}`, ",", "]}")
		},
		"many unknown": func() string {
			return size.filled(`{"objects":[`, `{"kind":"lb","spec":{`+strings.Repeat(`"a":1,`, 82)+`"b":1}}`, ",", "]}")
		},
		"deep":         func() string { return size.filled(spec, "[", "", "") },
		"deep objects": func() string { return size.filled(spec, `{"endpoints":`, "", "") },
		"nested to the bound": func() string {
			return size.filled(spec+`{"endpoints":[`, strings.Repeat(`[`, 50)+strings.Repeat("]", 50), ",", "]}}]}")
		},
		"twice": func() string {
			return size.filled(`{"objects":[{"kind":"lb"`, `,"spec":{"endpoints":[{},{}]}`, "", "}]}")
		},
		"all the same": func() string {
			return size.filled(`{"objects":[`, service(`"endpoints":[{"endpointIP":"31.31.31.1","targetPort":80,"weight":1}]`), ",", "]}")
		},
		"the largest configuration": func() string {
			var b strings.Builder
			b.WriteString(`{"objects":[`)
			for i := range 65536 {
				fmt.Fprintf(&b, `{"kind":"lb","spec":{"serviceArguments":{"externalIP":"20.20.%d.%d","port":80,"protocol":"tcp"},"endpoints":[`, i>>8, i&255)
				for j := range 3 {
					fmt.Fprintf(&b, `{"endpointIP":"31.%d.%d.%d","targetPort":80,"weight":1},`, j, i>>8, i&255)
				}
				b.WriteString(`{"endpointIP":"32.1.1.1","targetPort":80,"weight":1}`)
				b.WriteString(`]}}`)
				if i < 65535 {
					b.WriteString(",")
				}
			}
			b.WriteString(`],"dryRun":true}`)
			return b.String()
		},
	}
}

// asImport returns a body of objects in the form of a file to import.
func asImport(t *testing.T, text string) (body, contentType string) {
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	w, err := form.CreateFormFile("configuration", "c.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(strings.Replace(text, `{"objects":[{"kind":"lb","spec":`, `{"loadbalancer":[`, 1))); err != nil {
		t.Fatal(err)
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), form.FormDataContentType()
}

// peakOfProcess returns the peak memory of this process, in MiB.
func peakOfProcess(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if err != nil || m == nil {
		t.Fatalf("got %v, want no error, m != nil", err)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n >> 10
}

// send sends a body, and returns the status code and the beginning of the response.
func send(t *testing.T, operation, text string) string {
	b := apitest.New(t, nil)
	path, ct := httpapi.BaseURL+"/config/apply", "application/json"
	if operation == "import" {
		text, ct = asImport(t, text)
		path = httpapi.BaseURL + "/config/import"
	}
	r := httptest.NewRequest("POST", "http://127.0.0.1:11111"+path, strings.NewReader(text))
	r = r.WithContext(transport.WithPeer(r.Context(), b.Peer))
	r.Header.Set("Content-Type", ct)
	w := httptest.NewRecorder()
	b.Http.ServeHTTP(w, r)
	return fmt.Sprintf("%d %.120s", w.Code, strings.ReplaceAll(w.Body.String(), "\n", " "))
}

// TestAllocationsOfWorstBodies checks that the worst bodies need at most thirty times their size,
// including garbage.
func TestAllocationsOfWorstBodies(t *testing.T) {
	race.Skip(t)
	for _, name := range []string{"null endpoints", "sources", "long name", "long kind", "many unknown", "metadata"} {
		text := worstBodies(rest.MaxBody / 4)[name]()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		answer := send(t, "apply", text)
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 30*rest.MaxBody/4>>20 || answer[0] != '4' {
			t.Errorf("%s: %d MiB, %s", name, got, answer)
		}
	}
}

var long = flag.Bool("long", false, "measure the memory that the worst bodies take, each in its own process")

const memoryCase = "LOXILB_MEMORY_CASE"

// TestMemoryOfWorstBodies checks that any body of the largest size needs less than 512 MiB.
func TestMemoryOfWorstBodies(t *testing.T) {
	if operation, name, ok := strings.Cut(os.Getenv(memoryCase), " "); ok {
		text := worstBodies(rest.MaxBody)[name]()
		before := peakOfProcess(t)
		answer := send(t, operation, text)
		fmt.Printf("took %d MiB: %s\n", peakOfProcess(t)-before, answer)
		return
	}
	if !*long {
		t.Skip("-long measures")
	}
	for name := range worstBodies(rest.MaxBody) {
		for _, operation := range []string{"apply", "import"} {
			cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryOfWorstBodies$", "-test.v")
			cmd.Env = append(os.Environ(), memoryCase+"="+operation+" "+name)
			out, err := cmd.CombinedOutput()
			m := regexp.MustCompile(`took (\d+) MiB: .*`).FindSubmatch(out)
			if err != nil || m == nil {
				t.Errorf("got %s %s: %v %.2000s, want no error, m != nil", operation, name, err, out)
				continue
			}
			t.Logf("%-6s %-26s %s", operation, name, m[0])
			if n, _ := strconv.Atoi(string(m[1])); n > 512 {
				t.Errorf("%s %s: %d MiB", operation, name, n)
			}
		}
	}
}
