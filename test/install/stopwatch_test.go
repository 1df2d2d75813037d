package install

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// inFiveMinutes is the time limit for the installation, the first service and the removal.
const inFiveMinutes = 5 * time.Minute

// stopwatch records how long each step took.
type stopwatch struct {
	t           *testing.T
	began, last time.Time
}

func (s *stopwatch) lap(step string) {
	now := time.Now()
	s.t.Logf("%-36s %6.2f s, %6.2f s in all", step, now.Sub(s.last).Seconds(), now.Sub(s.began).Seconds())
	s.last = now
}

// TestStopwatch follows docs/first-service.md on Debian 12 and 13 that only have the package's
// dependencies. It downloads the package by HTTP.
//
// P73 Installation, a first answer and removal take less than five minutes
func TestStopwatch(t *testing.T) {
	needPackages(t)
	for _, suite := range []string{"bookworm", "trixie"} {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			s := labtest.Standard(t, netnstest.Options{})
			for _, h := range s.Endpoints {
				if err := h.ServeHTTP(":80"); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Endpoints[0].ServeHTTPWith(":8000", http.FileServer(http.Dir(packages()))); err != nil {
				t.Fatal(err)
			}
			first(t, s, boot(t, filepath.Join(os.Getenv("LOXILB_DEBIANS"), suite), s.LB))
		})
	}
}

// first creates the first service, from the download of the package to its removal.
func first(t *testing.T, s *netnstest.Standard, m *machine) {
	now := time.Now()
	watch := &stopwatch{t, now, now}
	m.run("/usr/lib/apt/apt-helper", "download-file", "http://31.31.31.1:8000/new.deb", "/root/loxilb.deb")
	watch.lap("download")
	m.run("apt-get", "install", "--yes", "--no-install-recommends", "/root/loxilb.deb")
	watch.lap("installed, and ready")
	m.loxicmd("create lb " + vip + " --tcp=80:80 --endpoints=31.31.31.1:1,32.32.32.1:1,17.17.17.1:1 --name=hello --monitor")
	watch.lap("service")
	client := http.Client{Transport: &http.Transport{DialContext: s.Client.DialContext, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	labtest.Eventually(t, 10*time.Second, func(context.Context) error {
		answer, err := client.Get("http://" + vip + "/")
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	})
	watch.lap("first answer")
	browser := http.Client{Transport: &http.Transport{DialContext: s.LB.DialContext}, Timeout: 5 * time.Second}
	for path, want := range map[string]string{"/": "<!DOCTYPE html>", "/netlox/v1/config/loadbalancer/all": `"hello"`} {
		if body, err := page(&browser, path); err != nil || !strings.Contains(strings.ToLower(body), strings.ToLower(want)) {
			t.Errorf("%s of the page has no %s: %v: %.300s", path, want, err, body)
		}
	}
	watch.lap("seen on the page")
	m.run("apt-get", "purge", "--yes", "loxilb")
	watch.lap("removed")
	if took := time.Since(watch.began); took > inFiveMinutes {
		t.Errorf("all steps together took %v", took)
	}
}

// page returns a page as a browser on the machine gets it.
func page(browser *http.Client, path string) (string, error) {
	answer, err := browser.Get("http://127.0.0.1:11111" + path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}
