#!/usr/bin/env perl
# Runs the list of operations with a Perl client, and prints a line for each: its name, a tab, and its result.
#
#     perl drive.pl Cache::Memcached::Fast|Cache::Memcached HOST PORT
#
# `scripts/clients/run.py` has the list and the form of the lines. If the first operation fails, the rest is not run.

use strict;
use warnings;
use Time::HiRes qw(sleep);

$| = 1;
my ($name, $host, $port) = @ARGV;
eval "require $name" or die $@;
my $fast = $name eq 'Cache::Memcached::Fast';
my $client = $name->new({
    servers => ["$host:$port"],
    $fast ? (io_timeout => 20, connect_timeout => 20, max_size => 64 << 20) : (select_timeout => 20),
});

sub short {
    my ($value) = @_;
    return 'undef' unless defined $value;
    return length $value <= 60 ? "'$value'" : "'" . substr($value, 0, 57) . "...'";
}

sub expect {
    my ($found, $wanted) = @_;
    return if !defined $found && !defined $wanted;
    return if defined $found && defined $wanted && $found eq $wanted;
    die 'returned ' . short($found) . ', expected ' . short($wanted) . "\n";
}

# Both clients return 1, or a false value.
sub expect_done { expect($_[0] ? 1 : 0, 1) }
sub expect_refused { expect($_[0] ? 1 : 0, 0) }

sub noise { return join '', map { chr int rand 256 } 1 .. $_[0] }

my @operations = (
    ['set' => sub { expect_done($client->set('key', 'value')) }],
    ['get' => sub { expect($client->get('key'), 'value') }],
    ['get missing' => sub { expect($client->get('missing'), undef) }],
    ['types' => sub {
        expect_done($client->set('typed', {list => [1, 2, 'three']}));
        my $found = $client->get('typed');
        expect(ref $found, 'HASH');
        expect(join(',', @{$found->{list}}), '1,2,three');
    }],
    ['add' => sub {
        expect_done($client->add('added', 'one'));
        expect($client->get('added'), 'one');
    }],
    ['add existing' => sub {
        expect_refused($client->add('added', 'two'));
        expect($client->get('added'), 'one');
    }],
    ['replace' => sub {
        expect_done($client->replace('added', 'three'));
        expect($client->get('added'), 'three');
        expect_refused($client->replace('missing', 'three'));
        expect($client->get('missing'), undef);
    }],
    ['append' => sub {
        expect_done($client->set('joined', 'b'));
        expect_done($client->append('joined', 'c'));
        expect($client->get('joined'), 'bc');
    }],
    ['prepend' => sub {
        expect_done($client->prepend('joined', 'a'));
        expect($client->get('joined'), 'abc');
    }],
    ['cas' => !$client->can('cas') ? undef : sub {
        expect_done($client->set('swapped', 'one'));
        my ($token, $value) = @{$client->gets('swapped')};
        expect($value, 'one');
        expect_done($client->cas('swapped', $token, 'two'));
        expect($client->get('swapped'), 'two');
    }],
    ['cas conflict' => !$client->can('cas') ? undef : sub {
        my ($token) = @{$client->gets('swapped')};
        expect_done($client->set('swapped', 'three'));
        expect_refused($client->cas('swapped', $token, 'four'));
        expect($client->get('swapped'), 'three');
    }],
    ['incr' => sub {
        expect_done($client->set('count', '10'));
        expect($client->incr('count', 5), 15);
    }],
    # memcached keeps the length of the number, with a space in the place of a digit.
    ['decr' => sub {
        expect($client->decr('count', 6), 9);
        expect($client->get('count') =~ s/ //r, '9');
    }],
    ['delete' => sub {
        expect_done($client->delete('key'));
        expect($client->get('key'), undef);
    }],
    ['delete missing' => sub { expect_refused($client->delete('key')) }],
    ['many keys' => sub {
        my @keys = map { "many$_" } 0 .. 99;
        expect_done($client->set($_, "value of $_")) for @keys;
        my $found = $client->get_multi(@keys, 'missing');
        expect(scalar keys %$found, 100);
        expect($found->{$_}, "value of $_") for @keys;
    }],
    ['touch' => !$client->can('touch') ? undef : sub {
        expect_done($client->set('touched', 'value', 100));
        expect_done($client->touch('touched', 1));
        expect($client->get('touched'), 'value');
        sleep 2.5;
        expect($client->get('touched'), undef);
        expect_refused($client->touch('touched', 1));
    }],
    ['gat' => !$client->can('gat') ? undef : sub {
        expect_done($client->set('gotten', 'value', 100));
        expect($client->gat(1, 'gotten'), 'value');
        sleep 2.5;
        expect($client->get('gotten'), undef);
    }],
    ['expiry' => sub {
        expect_done($client->set('short', 'value', 1));
        expect_done($client->set('long', 'value', 100));
        sleep 2.5;
        expect($client->get('short'), undef);
        expect($client->get('long'), 'value');
    }],
    ['900 KB' => sub {
        my $value = noise(900_000);
        expect_done($client->set('large', $value));
        expect($client->get('large') eq $value ? 1 : 0, 1);
    }],
    ['over 1 MB' => sub { expect_refused($client->set('over', noise(2_000_000))) }],
    ['after over 1 MB' => sub {
        expect_done($client->set('after', 'value'));
        expect($client->get('after'), 'value');
        expect($client->get('over'), undef);
    }],
    ['key of 250 bytes' => sub {
        expect_done($client->set('k' x 250, 'value'));
        expect($client->get('k' x 250), 'value');
    }],
    ['stats' => $fast ? undef : sub {
        my $stats = $client->stats('misc')->{hosts}{"$host:$port"}{misc};
        die short(join ' ', %$stats) . "\n" unless $stats->{curr_items} >= 1 && $stats->{pid} >= 1;
    }],
    ['version' => !$client->can('server_versions') ? undef : sub {
        my $version = $client->server_versions->{"$host:$port"};
        die 'returned ' . short($version) . "\n" unless defined $version && $version =~ /^[0-9]/;
    }],
    ['1000 in a row' => sub {
        for my $step (1 .. 1000) {
            expect_done($client->set("row$step", "value$step"));
            expect($client->get("row$step"), "value$step");
        }
    }],
    # One client cannot be in two threads.
    ['two at once' => undef],
    ['flush_all' => sub {
        expect_done($client->set('flushed', 'value'));
        $fast ? expect_done($client->flush_all->{"$host:$port"}) : expect_done($client->flush_all);
        expect($client->get('flushed'), undef);
        expect_done($client->set('flushed', 'again'));
        expect($client->get('flushed'), 'again');
    }],
);

print "client\t", $name->VERSION, "\ttext\n";
for (@operations) {
    my ($operation, $function) = @$_;
    my $result = 'not offered';
    if ($function) {
        $result = eval { $function->(); 1 } ? 'ok' : 'failed: ' . substr($@ =~ s/\s+/ /gr, 0, 200);
    }
    print "$operation\t$result\n";
    last if $operation eq 'set' && $result ne 'ok';
}
