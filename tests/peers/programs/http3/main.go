// quic-go as a client of HTTP/3: ADDRESS CA.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const patience = 60 * time.Second

func content(size int) []byte {
	content := make([]byte, size)
	for n := range content {
		content[n] = byte(n / 7 * 31 % 251)
	}
	return content
}

// A client, whose connections are begun with what earlier ones have left.
type peer struct {
	address string
	tls     *tls.Config
	quic    *quic.Config
}

// One connection.
type connection struct {
	peer  *peer
	quic  *quic.Conn
	http3 *http3.ClientConn
}

// An address of this side.
func own() (*quic.Transport, error) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	return &quic.Transport{Conn: socket}, err
}

func (p *peer) connect(ctx context.Context) (*connection, error) {
	target, err := url.Parse(p.address)
	if err != nil {
		return nil, err
	}
	server, err := net.ResolveUDPAddr("udp", target.Host)
	if err != nil {
		return nil, err
	}
	from, err := own()
	if err != nil {
		return nil, err
	}
	conn, err := from.DialEarly(ctx, server, p.tls, p.quic)
	if err != nil {
		return nil, err
	}
	transport := &http3.Transport{}
	return &connection{p, conn, transport.NewClientConn(conn)}, nil
}

func (c *connection) close() {
	c.quic.CloseWithError(0x100, "")
}

// Sends a request; returns the whole response, which has to be 200.
func (c *connection) ask(ctx context.Context, method string, path string, body io.Reader) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.peer.address+path, body)
	if err != nil {
		return nil, err
	}
	response, err := c.http3.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.Proto != "HTTP/3.0" {
		return nil, fmt.Errorf("%s: %s %s", path, response.Proto, response.Status)
	}
	return io.ReadAll(response.Body)
}

func (c *connection) download(ctx context.Context, name string) error {
	body, err := c.ask(ctx, http.MethodGet, "/files/"+name, nil)
	size, _ := strconv.Atoi(name)
	if err == nil && !bytes.Equal(body, content(size)) {
		err = fmt.Errorf("%s: other content", name)
	}
	return err
}

func (c *connection) upload(ctx context.Context, size int, known bool) error {
	var body io.Reader = bytes.NewReader(content(size))
	if !known {
		body = io.MultiReader(body)
	}
	echo, err := c.ask(ctx, http.MethodPost, "/app/echo", body)
	if err == nil && !bytes.Equal(echo, content(size)) {
		err = fmt.Errorf("another echo of %d", size)
	}
	return err
}

// Does several things at once; returns an error if there was one.
func together(tasks []func() error) error {
	results := make(chan error, len(tasks))
	var running sync.WaitGroup
	for _, task := range tasks {
		running.Add(1)
		go func() {
			defer running.Done()
			results <- task()
		}()
	}
	running.Wait()
	close(results)
	for err := range results {
		if err != nil {
			return err
		}
	}
	return nil
}

// Downloads and uploads of every size, at once, on this connection.
func (c *connection) transfer(ctx context.Context) error {
	list, err := c.ask(ctx, http.MethodGet, "/files/list", nil)
	if err != nil {
		return err
	}
	var tasks []func() error
	for round := 0; round < 3; round++ {
		for _, name := range strings.Fields(string(list)) {
			tasks = append(tasks, func() error { return c.download(ctx, name) })
		}
	}
	for _, size := range []int{1, 100_000, 5_000_000} {
		for _, known := range []bool{false, true} {
			tasks = append(tasks, func() error { return c.upload(ctx, size, known) })
		}
	}
	return together(tasks)
}

// Several connections that do this at the same time.
func (p *peer) connections(ctx context.Context) error {
	var tasks []func() error
	for n := 0; n < 3; n++ {
		tasks = append(tasks, func() error {
			c, err := p.connect(ctx)
			if err != nil {
				return err
			}
			defer c.close()
			return c.transfer(ctx)
		})
	}
	return together(tasks)
}

// The next connection begins with early data: the first one has given a ticket, and a token that proves the address.
func (p *peer) early(ctx context.Context) error {
	for n := 0; n < 3; n++ {
		c, err := p.connect(ctx)
		if err != nil {
			return err
		}
		early, err := c.ask(ctx, http3.MethodGet0RTT, "/early", nil)
		if err != nil {
			return err
		}
		// The handshake may be complete before the request is looked at.
		used := c.quic.ConnectionState().Used0RTT
		if used != (n > 0) || string(early) != "early " && (!used || string(early) != "early 1") {
			return fmt.Errorf("connection %d: 0-RTT %v, $ssl_early_data %q", n, used, early)
		}
		if err := c.download(ctx, "1000003"); err != nil {
			return err
		}
		c.close()
	}
	return nil
}

// A connection moves to another port, within a download.
func (p *peer) migration(ctx context.Context) error {
	c, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.download(ctx, "1000"); err != nil {
		return err
	}
	for n := 0; n < 3; n++ {
		from, err := own()
		if err != nil {
			return err
		}
		path, err := c.quic.AddPath(from)
		if err != nil {
			return err
		}
		download := make(chan error, 1)
		go func() { download <- c.download(ctx, "3000000") }()
		if err := path.Probe(ctx); err != nil {
			return fmt.Errorf("probe %d: %w", n, err)
		}
		if err := path.Switch(); err != nil {
			return fmt.Errorf("switch %d: %w", n, err)
		}
		if err := errors.Join(<-download, c.upload(ctx, 1_000_000, true)); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	pem, err := os.ReadFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, test := range []struct {
		name string
		run  func(*peer, context.Context) error
	}{
		{"connections", (*peer).connections},
		{"early data", (*peer).early},
		{"migration", (*peer).migration},
	} {
		client := &peer{
			address: os.Args[1],
			tls: &tls.Config{
				RootCAs:            pool,
				ServerName:         "localhost",
				NextProtos:         []string{http3.NextProtoH3},
				ClientSessionCache: tls.NewLRUClientSessionCache(8),
			},
			quic: &quic.Config{TokenStore: quic.NewLRUTokenStore(8, 8)},
		}
		if err := test.run(client, ctx); err != nil {
			fmt.Println(test.name+":", err)
			os.Exit(1)
		}
	}
}
