package browser

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"strings"
	"sync"
	"time"
)

// Tab is a page of a browser.
type Tab struct {
	browser *Browser
	session string

	mu     sync.Mutex
	errors []string
}

// anything is the type of a command's parameters.
type anything map[string]any

// Open opens a tab with the given size in pixels.
func (b *Browser) Open(width, height int) (*Tab, error) {
	var target struct{ TargetID string }
	if err := b.call("", "Target.createTarget", anything{"url": "about:blank"}, &target); err != nil {
		return nil, err
	}
	var attached struct{ SessionID string }
	if err := b.call("", "Target.attachToTarget", anything{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return nil, err
	}
	t := &Tab{browser: b, session: attached.SessionID}
	b.mu.Lock()
	b.tabs[t.session] = t
	b.mu.Unlock()
	var err error
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		err = errors.Join(err, t.call(domain+".enable", anything{}, nil))
	}
	return t, errors.Join(err, t.Resize(width, height))
}

func (t *Tab) call(method string, params, result any) error {
	return t.browser.call(t.session, method, params, result)
}

// happened records errors of the console: error messages, exceptions, and violations of the page's
// security policy.
func (t *Tab) happened(m *message) {
	var said string
	switch m.Method {
	case "Runtime.exceptionThrown":
		said = string(m.Params)
	case "Log.entryAdded":
		var p struct {
			Entry struct{ Level, Text, URL string }
		}
		if json.Unmarshal(m.Params, &p) == nil && (p.Entry.Level == "error" || p.Entry.Level == "warning") {
			said = p.Entry.Text + " " + p.Entry.URL
		}
	case "Runtime.consoleAPICalled":
		var p struct{ Type string }
		if json.Unmarshal(m.Params, &p) == nil && (p.Type == "error" || p.Type == "warning" || p.Type == "assert") {
			said = string(m.Params)
		}
	}
	if said == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errors = append(t.errors, said)
}

// Errors returns the console's errors since the last call.
func (t *Tab) Errors() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.errors
	t.errors = nil
	return out
}

// Go loads an address.
func (t *Tab) Go(url string) error {
	var result struct{ ErrorText string }
	if err := t.call("Page.navigate", anything{"url": url}, &result); err != nil {
		return err
	}
	if result.ErrorText != "" {
		return fmt.Errorf("load %s: %s", url, result.ErrorText)
	}
	return nil
}

// Eval runs JavaScript in the page. It stores the returned or promised value in result if that is
// not nil.
func (t *Tab) Eval(script string, result any) error {
	var out struct {
		Result    struct{ Value json.RawMessage }
		Exception *struct {
			Text      string
			Exception struct{ Description string }
		} `json:"exceptionDetails"`
	}
	if err := t.call("Runtime.evaluate", anything{"expression": script, "returnByValue": true, "awaitPromise": true}, &out); err != nil {
		return err
	}
	if out.Exception != nil {
		return fmt.Errorf("%.80s: %s %s", script, out.Exception.Text, out.Exception.Exception.Description)
	}
	if result == nil || len(out.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(out.Result.Value, result)
}

// Until waits for a condition in JavaScript.
func (t *Tab) Until(condition string) error {
	var met bool
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = t.Eval("Boolean("+condition+")", &met); err == nil && met {
			return nil
		}
	}
	var shown string
	_ = t.Eval("document.body.innerText", &shown)
	return errors.Join(err, fmt.Errorf("not within %v: %s; the page shows:\n%.2000s", patience, condition, shown))
}

// Resize changes the size of the window. A window of up to 600 pixels emulates a phone.
func (t *Tab) Resize(width, height int) error {
	return t.call("Emulation.setDeviceMetricsOverride", anything{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width <= 600}, nil)
}

// Scheme sets the preferred color scheme: dark or light.
func (t *Tab) Scheme(scheme string) error {
	return t.call("Emulation.setEmulatedMedia", anything{"features": []anything{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
}

// Press presses keys, such as Tab, Enter, ArrowDown or a letter.
func (t *Tab) Press(keys ...string) error {
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "PageDown": 34, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}
	for _, key := range keys {
		p := anything{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
		if len(key) == 1 {
			p["text"] = key
		} else if key == "Enter" {
			p["text"] = "\r"
		}
		up := anything{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
		if err := errors.Join(t.call("Input.dispatchKeyEvent", p, nil), t.call("Input.dispatchKeyEvent", up, nil)); err != nil {
			return err
		}
	}
	return nil
}

// Type types text where the focus is.
func (t *Tab) Type(text string) error { return t.Press(strings.Split(text, "")...) }

// Screenshot returns the content of the window.
func (t *Tab) Screenshot() (image.Image, []byte, error) {
	var shot struct{ Data []byte }
	if err := t.call("Page.captureScreenshot", anything{"format": "png"}, &shot); err != nil {
		return nil, nil, err
	}
	picture, err := png.Decode(bytes.NewReader(shot.Data))
	return picture, shot.Data, err
}

// Busy returns the CPU time of the page's main thread. Unlike elapsed time, it does not depend on
// the load of the machine.
func (t *Tab) Busy() (time.Duration, error) {
	var out struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	err := errors.Join(t.call("Performance.enable", anything{}, nil), t.call("Performance.getMetrics", anything{}, &out))
	for _, m := range out.Metrics {
		if m.Name == "ThreadTime" {
			return time.Duration(m.Value * float64(time.Second)), err
		}
	}
	return 0, errors.Join(err, errors.New("the browser has no metric ThreadTime"))
}
