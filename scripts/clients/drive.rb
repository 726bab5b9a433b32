# Runs the list of operations with dalli, and prints a line for each: its name, a tab, and its result.
#
#     GEM_PATH=... ruby drive.rb dalli-meta|dalli-binary HOST PORT
#
# `scripts/clients/run.py` has the list and the form of the lines. If the first operation fails, the rest is not run.

require 'logger'
require 'securerandom'
require 'dalli'

Dalli.logger = Logger.new(File::NULL)
NAME, HOST, PORT = ARGV
PROTOCOL = NAME.delete_prefix('dalli-')

# Compression would make the large values small.
CLIENT = Dalli::Client.new("#{HOST}:#{PORT}", protocol: PROTOCOL.to_sym, compress: false, socket_timeout: 20, value_max_bytes: 64 << 20)

def expect(found, wanted)
  return if found == wanted

  raise "returned #{found.inspect[0, 60]}, expected #{wanted.inspect[0, 60]}"
end

# Stored values return a cas id, and refused ones false.
def expect_stored(result, wanted = true)
  expect(result.is_a?(Integer) || result == true, wanted)
end

# Checks that a call stores nothing. dalli raises an error, or returns a false value.
def refused
  stored = yield
rescue Dalli::DalliError
  nil
else
  expect_stored(stored, false)
end

RAW = { raw: true }.freeze

OPERATIONS = {
  'set' => -> { expect_stored(CLIENT.set('key', 'value')) },
  'get' => -> { expect(CLIENT.get('key'), 'value') },
  'get missing' => -> { expect(CLIENT.get('missing'), nil) },
  'types' => lambda {
    [7, 2.5, :symbol, 'text', [1, { 'two' => nil }]].each do |value|
      expect_stored(CLIENT.set('typed', value))
      expect(CLIENT.get('typed'), value)
    end
  },
  'add' => lambda {
    expect_stored(CLIENT.add('added', 'one'))
    expect(CLIENT.get('added'), 'one')
  },
  'add existing' => lambda {
    expect_stored(CLIENT.add('added', 'two'), false)
    expect(CLIENT.get('added'), 'one')
  },
  'replace' => lambda {
    expect_stored(CLIENT.replace('added', 'three'))
    expect(CLIENT.get('added'), 'three')
    expect_stored(CLIENT.replace('missing', 'three'), false)
    expect(CLIENT.get('missing'), nil)
  },
  # A value that dalli has marshalled cannot be appended to.
  'append' => lambda {
    expect_stored(CLIENT.set('joined', 'b', 0, RAW))
    expect_stored(CLIENT.append('joined', 'c'))
    expect(CLIENT.get('joined', RAW), 'bc')
  },
  'prepend' => lambda {
    expect_stored(CLIENT.prepend('joined', 'a'))
    expect(CLIENT.get('joined', RAW), 'abc')
  },
  'cas' => lambda {
    expect_stored(CLIENT.set('swapped', 'one'))
    seen = nil
    expect_stored(CLIENT.cas('swapped') { |value| (seen = value) && 'two' })
    expect(seen, 'one')
    expect(CLIENT.get('swapped'), 'two')
  },
  'cas conflict' => lambda {
    expect_stored(CLIENT.cas('swapped') { |_| CLIENT.set('swapped', 'three') && 'four' }, false)
    expect(CLIENT.get('swapped'), 'three')
  },
  'incr' => lambda {
    expect_stored(CLIENT.set('count', '10', 0, RAW))
    expect(CLIENT.incr('count', 5), 15)
  },
  # memcached keeps the length of the number, with a space in the place of a digit.
  'decr' => lambda {
    expect(CLIENT.decr('count', 6), 9)
    expect(CLIENT.get('count', RAW).strip, '9')
  },
  'delete' => lambda {
    expect(CLIENT.delete('key'), true)
    expect(CLIENT.get('key'), nil)
  },
  'delete missing' => -> { expect(CLIENT.delete('key'), false) },
  'many keys' => lambda {
    items = (0...100).to_h { |number| ["many#{number}", "value#{number}"] }
    CLIENT.multi { items.each { |key, value| CLIENT.set(key, value) } }
    expect(CLIENT.get_multi(*items.keys, 'missing'), items)
  },
  'touch' => lambda {
    expect_stored(CLIENT.set('touched', 'value', 100))
    expect(CLIENT.touch('touched', 1), true)
    expect(CLIENT.get('touched'), 'value')
    sleep 2.5
    expect(CLIENT.get('touched'), nil)
    expect(CLIENT.touch('touched', 1), nil)
  },
  'gat' => lambda {
    expect_stored(CLIENT.set('gotten', 'value', 100))
    expect(CLIENT.gat('gotten', 1), 'value')
    sleep 2.5
    expect(CLIENT.get('gotten'), nil)
  },
  'expiry' => lambda {
    expect_stored(CLIENT.set('short', 'value', 1))
    expect_stored(CLIENT.set('long', 'value', 100))
    sleep 2.5
    expect(CLIENT.get('short'), nil)
    expect(CLIENT.get('long'), 'value')
  },
  '900 KB' => lambda {
    value = SecureRandom.bytes(900_000)
    expect_stored(CLIENT.set('large', value))
    expect(CLIENT.get('large') == value, true)
  },
  'over 1 MB' => -> { refused { CLIENT.set('over', SecureRandom.bytes(2_000_000)) } },
  'after over 1 MB' => lambda {
    expect_stored(CLIENT.set('after', 'value'))
    expect(CLIENT.get('after'), 'value')
    expect(CLIENT.get('over'), nil)
  },
  'key of 250 bytes' => lambda {
    expect_stored(CLIENT.set('k' * 250, 'value'))
    expect(CLIENT.get('k' * 250), 'value')
  },
  'stats' => lambda {
    stats = CLIENT.stats.values.first
    raise stats.inspect[0, 60] unless stats['curr_items'].to_i.positive? && stats['pid'].to_i.positive?
  },
  'version' => lambda {
    version = CLIENT.version.values.first
    raise "returned #{version.inspect}" unless version =~ /\A\d/
  },
  '1000 in a row' => lambda {
    1000.times do |step|
      expect_stored(CLIENT.set("row#{step}", "value#{step}"))
      expect(CLIENT.get("row#{step}"), "value#{step}")
    end
  },
  'two at once' => lambda {
    threads = [1, 2].map do |number|
      Thread.new do
        200.times do |step|
          expect_stored(CLIENT.set("thread#{number}-#{step}", "#{number}:#{step}"))
          expect(CLIENT.get("thread#{number}-#{step}"), "#{number}:#{step}")
        end
      end
    end
    threads.each { |thread| thread.report_on_exception = false }
    threads.each(&:join)
  },
  'flush_all' => lambda {
    expect_stored(CLIENT.set('flushed', 'value'))
    expect(CLIENT.flush_all, [true])
    expect(CLIENT.get('flushed'), nil)
    expect_stored(CLIENT.set('flushed', 'again'))
    expect(CLIENT.get('flushed'), 'again')
  }
}.freeze

$stdout.sync = true
puts "client\t#{Dalli::VERSION}\t#{PROTOCOL}"
OPERATIONS.each do |operation, function|
  begin
    function.call
    result = 'ok'
  rescue StandardError => e
    result = "failed: #{e.class}: #{e.message.split.join(' ')[0, 200]}"
  end
  puts "#{operation}\t#{result}"
  break if operation == 'set' && result != 'ok'
end
