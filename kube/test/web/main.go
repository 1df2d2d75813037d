// Command web is the program of containers in test clusters: a web server that answers with its
// name and the client's address, a client, and the first process of a pod.
//
//	web                         serve HTTP and UDP on port 8080; /port returns the client's port
//	web get COUNT HOST:PORT     make requests, and print each answer or error
//	web pause                   wait for the end of the pod
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const (
	port     = ":8080"
	patience = 2 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "pause":
		pause(ctx)
	case len(os.Args) == 4 && os.Args[1] == "get":
		get(ctx, os.Args[2], os.Args[3])
	default:
		serve(ctx)
	}
}

// pause waits for a signal, and reaps orphans as the first process of a pod must.
func pause(ctx context.Context) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-ctx.Done():
			return
		case <-children:
			for pid := 1; pid > 0; {
				pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			}
		}
	}
}

// serve answers requests until a signal arrives, and finishes pending ones.
func serve(ctx context.Context) {
	name, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	go serveUDP(name)
	server := &http.Server{Addr: port, ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, port, _ := net.SplitHostPort(r.RemoteAddr)
		if r.URL.Path == "/port" {
			client = port
		}
		fmt.Fprintln(w, name, client)
	})}
	go func() {
		if err := server.ListenAndServe(); err != http.ErrServerClosed {
			log.Fatal(err)
		}
	}()
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = server.Shutdown(ending)
}

// serveUDP answers each packet.
func serveUDP(name string) {
	socket, err := net.ListenPacket("udp", port)
	if err != nil {
		log.Fatal(err)
	}
	for request := make([]byte, 1500); ; {
		_, from, err := socket.ReadFrom(request)
		if err != nil {
			log.Fatal(err)
		}
		client, _, _ := net.SplitHostPort(from.String())
		_, _ = fmt.Fprintf(packet{socket, from}, "%s %s\n", name, client)
	}
}

// packet is a writer that sends each write as a packet.
type packet struct {
	socket net.PacketConn
	to     net.Addr
}

func (p packet) Write(b []byte) (int, error) { return p.socket.WriteTo(b, p.to) }

// get makes requests, each over a new connection.
func get(ctx context.Context, count, address string) {
	n, err := strconv.Atoi(count)
	if err != nil {
		log.Fatalf("count %q is not a number", count)
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	failed := false
	for range n {
		text, err := answer(ctx, client, "http://"+address+"/")
		if err != nil {
			failed = true
			text = fmt.Sprintln(err)
		}
		fmt.Print(text)
	}
	if failed {
		os.Exit(1)
	}
}

// answer makes a request and returns the answer.
func answer(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}
