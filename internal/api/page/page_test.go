package page_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"loxilb/internal/api/page"
)

func request(method, path string, headers ...string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	page.New().Register(mux)
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

// TestFiles checks every file that the page refers to: it exists with its content type, is cached
// without limit under a name that changes with its content, and is compressed if the browser
// accepts that. No file is unused.
func TestFiles(t *testing.T) {
	t.Parallel()
	index := request("GET", "/")
	if index.Code != 200 || index.Header().Get("Cache-Control") != "no-cache" || !strings.HasPrefix(index.Header().Get("Content-Type"), "text/html") {
		t.Fatalf(`got %d %v, want code 200, Cache-Control == "no-cache", `+
			`index.Header().Get("Content-Type") begins with "text/html"`,
			index.Code, index.Header())
	}
	if again := request("GET", "/", "If-None-Match", index.Header().Get("ETag")); again.Code != 304 || again.Body.Len() > 0 {
		t.Errorf("unchanged: %d, %d bytes", again.Code, again.Body.Len())
	}
	if head := request("HEAD", "/"); head.Code != 200 || head.Body.Len() > 0 || head.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: %d %v", head.Code, head.Header())
	}
	named := map[string]bool{"index.html": true}
	kinds := map[string]string{".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
	for _, m := range regexp.MustCompile(`"(/page/[0-9a-f]+/([^"]+))"`).FindAllStringSubmatch(index.Body.String(), -1) {
		named[m[2]] = true
		plain, small := request("GET", m[1]), request("GET", m[1], "Accept-Encoding", "gzip, br")
		if plain.Code != 200 || !strings.HasPrefix(plain.Header().Get("Content-Type"), kinds[filepath.Ext(m[2])]) || !strings.Contains(plain.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: got %d %v, want code 200, the type of the file's extension, and unlimited caching", m[1], plain.Code, plain.Header())
		}
		z, err := gzip.NewReader(small.Body)
		if err != nil {
			t.Fatalf("%s: %v", m[1], err)
		}
		if text, err := io.ReadAll(z); err != nil || string(text) != plain.Body.String() {
			t.Errorf("the compressed %s has another text: %v", m[1], err)
		}
	}
	err := filepath.WalkDir("assets", func(path string, d os.DirEntry, err error) error {
		if name := strings.TrimPrefix(path, "assets/"); err == nil && !d.IsDir() && !named[name] {
			t.Errorf("index.html does not name %s", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPolicy checks that every response forbids what the page does not need. A file of another
// version gives 404, and is not cached.
func TestPolicy(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{"/": 200, "/page/0000000000000000/main.js": 404, "/page/": 404, "/page/%2e%2e/%2e%2e/etc/passwd": 404} {
		w := request("GET", path)
		policy := w.Header().Get("Content-Security-Policy")
		for _, rule := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, rule) {
				t.Errorf("%s: %q lacks %s", path, policy, rule)
			}
		}
		if strings.Contains(policy, "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf(`%s: got %v, want no "unsafe" in policy, X-Content-Type-Options == "nosniff"`,
				path, w.Header())
		}
		if w.Code != want || want == 404 && w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: got %d %v, want code %d, and no caching of 404", path, w.Code, w.Header(), want)
		}
	}
}

// TestSources checks that no file converts text to HTML, or names another host.
func TestSources(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|\bhttps?://|style="| on[a-z]+="`)
	allowed := `http://www.w3.org/2000/svg` // the name of an XML namespace, which is not loaded
	err := filepath.WalkDir("assets", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if found := forbidden.FindString(strings.ReplaceAll(string(text), allowed, "")); found != "" {
			t.Errorf("%s has %s", path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
