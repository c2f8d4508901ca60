"""What the sample shop sells: colours, brands and kinds of products, in English and Japanese; all brands invented."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Colour:
    english: tuple[str, ...]
    japanese: tuple[str, ...]
    families: frozenset[str]


@dataclass(frozen=True)
class Kind:
    """A kind of product: its names, its sizes in several spellings (English, Japanese), and what goes with it."""

    english: str
    japanese: str
    sizes: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    goes_with: int  # the row of another kind


def _lines(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _words(cell: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in cell.split("/"))


# English names, Japanese names, families (its own name where there is none)
_COLOURS = """
black           | 黒 / ブラック                 | black
charcoal        | チャコール / チャコールグレー | black / grey
grey / gray     | グレー / 灰色                 | grey
white           | 白 / ホワイト                 | white
red             | 赤 / レッド                   | red
blue            | 青 / ブルー                   | blue
navy / navy blue| 紺 / ネイビー                 | blue
green           | 緑 / グリーン                 | green
yellow          | 黄色 / イエロー               | yellow
pink            | ピンク / 桃色                 | pink
brown           | 茶色 / ブラウン               | brown
purple          | 紫 / パープル                 | purple
"""

_BRANDS = """
Kestova      | ケストバ
Minarel      | ミナレル
Oruvi        | オルヴィ
Bramwyn      | ブラムウィン
Hoshinari    | ホシナリ
Lu-Venti     | ルヴェンティ
Sabrenne     | サブレンヌ
Pelloto      | ペロット
Norvika      | ノルヴィカ
Dexaro       | デクサロ
Zuvanta      | ズヴァンタ
Ikomura      | イコムラ
Arbelis      | アルベリス
Tromfeld     | トロムフェルト
Calvessa     | カルヴェッサ
Ro-kkan      | ロッカン
Vestrilo     | ヴェストリロ
Onubari      | オヌバリ
Gelmont      | ジェルモン
Tafuri Works | タフリワークス
"""

# English name, Japanese name, what goes with it, then three sizes: spellings in English = in Japanese
_KINDS = """
water bottle|水筒|lunch box|350 ml/350ml=350ml|500 ml/0.5 L=500ml/５００ｍｌ|1 L/1000 ml=1L/1リットル
lunch box|弁当箱|water bottle|600 ml=600ml|800 ml/0.8 L=800ml|1.1 L/1100 ml=1.1L/1100ml
backpack|リュック|umbrella|15 L/15 litres=15L/15リットル|22 L=22L|30 L/30L=30L/３０Ｌ
USB stick|USBメモリ|external hard drive|32 GB/32GB=32GB|64 GB=64GB/64ギガ|128 GB/0.128 TB=128GB
HDMI cable|HDMIケーブル|monitor|1 m/100 cm=1m/1メートル|2 m/200 cm=2m|5 m/5m=5m/5メートル
external hard drive|外付けHDD|USB stick|1 TB/1000 GB=1TB/1テラ|2 TB/2TB=2TB|4 TB=4TB/4000GB
monitor|モニター|HDMI cable|24 inch/61 cm=24インチ/24型|27 inch/27"=27インチ|32 inch/81.3 cm=32型
power bank|モバイルバッテリー|backpack|5000 mAh/5 Ah=5000mAh|10,000 mAh=1万mAh|20000 mAh=20000mAh
notebook|ノート|ballpoint pen|30 sheets=30枚|50 sheets=50枚/５０枚|80 sheets=80枚
ballpoint pen|ボールペン|notebook|3 pack/pack of 3=3本/3本セット|5 pack/set of 5=5本|10 pack=10本入り
mug|マグカップ|electric kettle|250 ml=250ml|350 ml/35 cl=350ml|450 ml=450ml/0.45リットル
electric kettle|電気ケトル|mug|0.8 L/800 ml=0.8L/800ml|1.2 L=1.2L/1.2リットル|1.7 L/1700 ml=1.7L
desk lamp|デスクライト|extension cord|5 W/5 watt=5W/5ワット|8 W=8W|12 W/12W=12W/１２Ｗ
frying pan|フライパン|electric kettle|20 cm/200 mm=20cm|24 cm=24cm/24センチ|28 cm/28cm=２８ｃｍ
yoga mat|ヨガマット|dumbbell|4 mm/0.4 cm=4mm|6 mm=6mm/6ミリ|10 mm/1 cm=10mm/1cm
dumbbell|ダンベル|yoga mat|2 kg/2000 g=2kg/2キロ|5 kg/5kg=5kg|10 kg=10kg/１０ｋｇ
umbrella|傘|backpack|55 cm/55cm=55cm|60 cm/600 mm=60cm/60センチ|70 cm=70cm
storage box|収納ボックス|rug|20 L/20 litres=20L|40 L=40L/40リットル|60 L=60L/６０Ｌ
extension cord|延長コード|desk lamp|1.5 m/150 cm=1.5m|3 m=3m/3メートル|10 m/10m=10m
rug|ラグ|storage box|130 x 185 cm=130×185cm|185 x 240 cm=185×240cm|200 x 250 cm=200×250cm
"""


def _kinds() -> tuple[Kind, ...]:
    rows = _lines(_KINDS)
    names = [row[0] for row in rows]
    return tuple(Kind(row[0], row[1], tuple(_size(cell) for cell in row[3:]), names.index(row[2])) for row in rows)


def _size(cell: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    english, japanese = cell.split("=")
    return _words(english), _words(japanese)


COLOURS = tuple(Colour(_words(en), _words(ja), frozenset(_words(family))) for en, ja, family in _lines(_COLOURS))
BRANDS = tuple((latin, kana) for latin, kana in _lines(_BRANDS))
KINDS = _kinds()
