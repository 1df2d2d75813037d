// Package page serves the web page at /: static files without any data of this load balancer. The
// page gets its data from the REST API, with the token of its user (adr/0061).
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed assets
var assets embed.FS

// folder is the URL path of the page's files, in a subfolder named after their hash.
const folder = "/page/"

// policy lets the page load only its own files and request only its own server. No text becomes
// HTML or a program.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; " +
	"form-action 'self'; require-trusted-types-for 'script'; trusted-types 'none'"

// Page serves the files of the web page.
type Page struct{ files func() map[string]*file }

// file is a file of the page and its headers.
type file struct {
	kind         string
	tag          string
	cache        string
	plain, small []byte // small is compressed by gzip
}

// New returns a page. Its files are read at the first request.
func New() *Page { return &Page{sync.OnceValue(read)} }

// Serves reports whether a request is for a file of the page, which needs no token.
func Serves(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, folder))
}

// Register adds the page to a router.
func (p *Page) Register(mux *http.ServeMux) {
	mux.Handle("GET /{$}", p)
	mux.Handle("GET "+folder, p)
}

// ServeHTTP replies with a file.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	f, there := p.files()[r.URL.Path]
	if !there {
		h.Set("Cache-Control", "no-store")
		http.Error(w, "this version of the page has no such file: load / again", http.StatusNotFound)
		return
	}
	h.Set("Cache-Control", f.cache)
	h.Set("ETag", f.tag)
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("If-None-Match"), f.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.kind)
	body := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = f.small
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // fails only if the client has disconnected
	}
}

// kind returns the content type by file name extension, independent of the machine's configuration.
func kind(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// index is the file at /. It refers to the folder of the other files as @.
const index = "index.html"

// read returns the files by request path. The folder's name is a hash of all files, so browsers can
// cache them forever and never mix versions.
func read() map[string]*file {
	content, sum := map[string][]byte{}, sha256.New()
	_ = fs.WalkDir(assets, "assets", func(name string, d fs.DirEntry, err error) error { // embedded files always exist
		if err != nil || d.IsDir() {
			return err
		}
		data, err := assets.ReadFile(name)
		content[strings.TrimPrefix(name, "assets/")] = data
		sum.Write([]byte(name))
		sum.Write(data)
		return err
	})
	version := hex.EncodeToString(sum.Sum(nil))[:16]
	out := make(map[string]*file, len(content))
	for name, data := range content {
		at, cache := folder+version+"/"+name, "public, max-age=31536000, immutable"
		if name == index {
			at, cache = "/", "no-cache"
			data = bytes.ReplaceAll(data, []byte(`"@`), []byte(`"`+folder+version))
		}
		out[at] = &file{kind: kind(name), tag: `"` + version + `"`, cache: cache, plain: data, small: compressed(data)}
	}
	return out
}

func compressed(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(data) // writes to memory do not fail
	_ = z.Close()
	return b.Bytes()
}
